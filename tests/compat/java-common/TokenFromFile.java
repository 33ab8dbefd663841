import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** A token as an application gets it; the client's own handler needs libraries that do not come with it. */
public final class TokenFromFile implements AuthenticateCallbackHandler {
    private String text;

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
        try {
            text = Files.readString(Path.of((String) entries.get(0).getOptions().get("file")));
        } catch (IOException missing) {
            throw new IllegalArgumentException(missing);
        }
    }

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback asked) {
                asked.token(new Token(text));
            }
        }
    }

    @Override
    public void close() {}

    /** The client does not look into it: it is to be valid for an hour, even if it is not. */
    private record Token(String value) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return System.currentTimeMillis() + 3_600_000;
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}
