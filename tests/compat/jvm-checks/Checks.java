import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Makes the named checks of a program and reports them, one line of JSON each, to the harness around it
 * (tests/compat/harness.py describes the lines in both directions).
 */
final class Checks {
    private static final PrintStream REPORTS = System.out;
    private static final BufferedReader ANSWERS =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** What a check does; whatever it throws is why it failed. */
    interface Body {
        void run(Check check) throws Exception;
    }

    private final Map<String, Body> bodies = new LinkedHashMap<>();

    Checks add(String name, Body body) {
        bodies.put(name, body);
        return this;
    }

    /** Whether the broker is secured: then the checks of that are made in place of the others. */
    static boolean isSecured() {
        return System.getenv("SECURED_FILES") != null;
    }

    /** Runs the program: BOOTSTRAP RUN [CHECK...]. RUN makes names unique; without checks named, all are made. */
    void main(String[] arguments) throws InterruptedException {
        // What libraries print is no report.
        System.setOut(System.err);
        if (arguments.length < 2) {
            System.err.println("usage: program BOOTSTRAP RUN [CHECK...]");
            System.exit(2);
        }
        List<String> wanted = List.of(arguments).subList(2, arguments.length);
        for (String name : wanted) {
            if (!bodies.containsKey(name)) {
                System.err.println("no such check: " + name);
                System.exit(2);
            }
        }
        for (var entry : bodies.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(entry.getKey())) {
                say(new Check(entry.getKey(), arguments[0], arguments[1]).run(entry.getValue()));
            }
        }
        // Threads of checks that did not end in time do not keep the program.
        System.exit(0);
    }

    static void say(Map<String, Object> line) {
        synchronized (REPORTS) {
            REPORTS.println(Json.write(line));
            REPORTS.flush();
        }
    }

    /** Puts a question to the harness and returns its answer; null when there is none. */
    static String ask(String what) throws IOException {
        synchronized (ANSWERS) {
            say(Map.of("ask", what));
            return ANSWERS.readLine();
        }
    }
}
