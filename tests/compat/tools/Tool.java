import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

/** One of Kafka's command line tools, run in this process: its main method, what it printed and how it ended. */
record Tool(int exitCode, List<String> lines, List<String> errors) {
    /** Ends a tool instead of the process. */
    private static final class EndedException extends RuntimeException {
        EndedException(int exitCode) {
            super("ended with " + exitCode, null, false, false);
        }
    }

    /** Runs `name`'s main with BOOTSTRAP in the arguments replaced by the check's broker. */
    static Tool run(Check check, String name, String... arguments) throws Exception {
        return fed(check, "", name, arguments);
    }

    /** The same with `input` on its standard input. */
    static Tool fed(Check check, String input, String name, String... arguments) throws Exception {
        String className = name.contains(".") ? name : "org.apache.kafka.tools." + name;
        String[] replaced =
                Arrays.stream(arguments).map(one -> one.replace("BOOTSTRAP", check.bootstrap)).toArray(String[]::new);
        PrintStream out = System.out;
        PrintStream error = System.err;
        InputStream in = System.in;
        var lines = new ByteArrayOutputStream();
        var errors = new ByteArrayOutputStream();
        // Some tools catch whatever is thrown and exit once more: what they asked for first is what counts.
        List<Integer> exitCodes = new ArrayList<>();
        List<Runnable> hooks = new ArrayList<>();
        Exit.Procedure end = (code, message) -> {
            exitCodes.add(code);
            throw new EndedException(code);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((hookName, runnable) -> hooks.add(runnable));
        System.setOut(new PrintStream(lines, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        try {
            try {
                Class.forName(className).getMethod("main", String[].class).invoke(null, (Object) replaced);
            } catch (InvocationTargetException thrown) {
                if (exitCodes.isEmpty()) {
                    exitCodes.add(1);
                    thrown.getCause().printStackTrace();
                }
            }
            hooks.forEach(Runnable::run);
        } finally {
            System.setOut(out);
            System.setErr(error);
            System.setIn(in);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            Exit.resetShutdownHookAdder();
        }
        return new Tool(exitCodes.isEmpty() ? 0 : exitCodes.get(0), split(lines), split(errors));
    }

    /** The same, where anything but success ends the check. */
    static List<String> output(Check check, String name, String... arguments) throws Exception {
        return outputOf(check, "", name, arguments);
    }

    static List<String> outputOf(Check check, String input, String name, String... arguments) throws Exception {
        Tool ended = fed(check, input, name, arguments);
        if (ended.exitCode() != 0) {
            throw check.failed(name + " " + String.join(" ", arguments) + " ended with " + ended.exitCode() + ":\n"
                    + String.join("\n", ended.lines()) + "\n" + String.join("\n", ended.errors()));
        }
        return ended.lines();
    }

    /** The lines of a tool that ends its process itself (shutdown hooks, System.exit) and so needs a separate one. */
    static List<String> processOutput(Check check, String name, String... arguments) throws Exception {
        Process process = new ProcessBuilder(command(check, name, arguments)).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try {
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            check.equal(name + " ended with", process.waitFor(), 0);
            return output.lines().toList();
        } finally {
            process.destroyForcibly();
        }
    }

    /** The command line that runs a tool in its own process. */
    static List<String> command(Check check, String name, String... arguments) {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-cp", System.getProperty("java.class.path"), "org.apache.kafka.tools." + name));
        for (String argument : arguments) {
            command.add(argument.replace("BOOTSTRAP", check.bootstrap));
        }
        return command;
    }

    /** Everything it printed, on both streams. */
    String text() {
        return String.join("\n", lines) + "\n" + String.join("\n", errors);
    }

    /** A file that a tool reads; it is deleted when the program ends. */
    static String file(String content) throws Exception {
        Path path = Files.createTempFile("fencepost-tools-", ".txt");
        path.toFile().deleteOnExit();
        Files.writeString(path, content);
        return path.toString();
    }

    /** The words of each line, without the space that tables are aligned with. */
    static List<List<String>> words(List<String> lines) {
        return lines.stream().filter(line -> !line.isBlank()).map(line -> List.of(line.strip().split("\\s+"))).toList();
    }

    private static List<String> split(ByteArrayOutputStream stream) {
        return new ArrayList<>(stream.toString(StandardCharsets.UTF_8).lines().toList());
    }
}
