import java.io.BufferedReader;
import java.io.IOException;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** A tool in its own process that goes on while a check does, and the lines it has written so far. */
final class RunningTool implements AutoCloseable {
    private static final Pattern VALUE = Pattern.compile("\"value\":\"(\\d+)\"");
    private static final Pattern PARTITION = Pattern.compile("\"partition\":");

    private final Process process;
    private final List<String> lines = new CopyOnWriteArrayList<>();

    RunningTool(Check check, String name, String... arguments) throws IOException {
        process = new ProcessBuilder(Tool.command(check, name, arguments))
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        Thread reader = new Thread(this::read);
        reader.setDaemon(true);
        reader.start();
    }

    private void read() {
        try (BufferedReader output = process.inputReader()) {
            output.lines().forEach(lines::add);
        } catch (IOException | java.io.UncheckedIOException ended) {
            // The process is gone; what it wrote is there.
        }
    }

    /** The lines that tell of an event of this name. */
    List<String> events(String name) {
        return lines.stream().filter(line -> line.contains("\"name\":\"" + name + "\"")).toList();
    }

    /** The numbers that records had as their values, in events of this name. */
    Set<Integer> numbers(String name) {
        return events(name).stream().map(VALUE::matcher).filter(Matcher::find)
                .map(found -> Integer.parseInt(found.group(1))).collect(Collectors.toSet());
    }

    /** How many partitions a consumer was assigned when it last was. */
    long held() {
        List<String> assigned = events("partitions_assigned");
        return assigned.isEmpty() ? 0 : PARTITION.matcher(assigned.get(assigned.size() - 1)).results().count();
    }

    boolean isRunning() {
        return process.isAlive();
    }

    /** Ends it with SIGTERM, upon which a consumer leaves its group. */
    void terminate(Check check) throws InterruptedException {
        process.destroy();
        check.isTrue("it ends", process.waitFor(30, TimeUnit.SECONDS));
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
