import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Java's and Kafka's answers about names in certificates. Reads a file of lines, writes one answer a line in Base64:
 * `name HEX` asks for the text of the DER, `rule RULES NAME` (both in Base64) for the principal's name, where - is none.
 */
public class CertificateNames {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            String answer;
            if (words[0].equals("name")) {
                answer = new X500Principal(HexFormat.of().parseHex(words[1])).getName();
            } else {
                try {
                    answer = SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
                } catch (SslPrincipalMapper.NoMatchingRule error) {
                    System.out.println("-");
                    continue;
                }
            }
            System.out.println(Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
