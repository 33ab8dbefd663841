import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;

/** What a check works with: its broker, its names, and its assertions. */
final class Check {
    /** How long one check may take, a restarting broker and a busy machine included. */
    static final long LIMIT_MS = 120_000;

    /** The broker's HOST:PORT. */
    final String bootstrap;

    private final String check;
    private final String run;
    private final Map<String, Object> facts = new LinkedHashMap<>();

    Check(String check, String bootstrap, String run) {
        this.check = check;
        this.bootstrap = bootstrap;
        this.run = run;
    }

    /** Ends a check that failed. */
    static final class FailedException extends RuntimeException {
        FailedException(String reason) {
            super(reason);
        }
    }

    /** Ends a check that cannot be made here. */
    static final class SkippedException extends RuntimeException {
        SkippedException(String reason) {
            super(reason);
        }
    }

    /** Makes the check, in its own thread, and returns its report. */
    Map<String, Object> run(Checks.Body body) throws InterruptedException {
        long started = System.nanoTime();
        Map<String, Object> ending = new LinkedHashMap<>(Map.of("outcome", "passed"));
        Thread thread = new Thread(() -> {
            try {
                body.run(this);
            } catch (SkippedException skipped) {
                ending.putAll(Map.of("outcome", "skipped", "detail", skipped.getMessage()));
            } catch (FailedException failed) {
                ending.putAll(Map.of("outcome", "failed", "detail", failed.getMessage() + place(failed)));
            } catch (Throwable failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                ending.putAll(Map.of("outcome", "failed", "detail", trace.toString()));
            }
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(LIMIT_MS);
        Map<String, Object> report = new LinkedHashMap<>(Map.of("check", check));
        if (thread.isAlive()) {
            StringWriter trace = new StringWriter();
            for (StackTraceElement frame : thread.getStackTrace()) {
                trace.append("\n    at ").append(frame.toString());
            }
            report.putAll(Map.of("outcome", "failed", "detail", "the check did not end in time:" + trace));
        } else {
            report.putAll(ending);
        }
        report.put("seconds", (System.nanoTime() - started) / 1_000_000 / 1e3);
        synchronized (facts) {
            report.put("facts", new LinkedHashMap<>(facts));
        }
        return report;
    }

    private static String place(Throwable failure) {
        StringBuilder lines = new StringBuilder();
        for (StackTraceElement frame : failure.getStackTrace()) {
            if (!frame.getClassName().equals("Check") && !frame.getClassName().startsWith("java.")) {
                lines.append("\n    at ").append(frame);
            }
        }
        return lines.toString();
    }

    /** A name that no other check and no other run uses. */
    String name(String kind) {
        return kind + "-" + check + "-" + run;
    }

    FailedException failed(String reason) {
        return new FailedException(reason);
    }

    void equal(String what, Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw failed(what + ": got " + got + ", want " + want);
        }
    }

    void isTrue(String what, boolean holds) {
        if (!holds) {
            throw failed(what + ": does not hold");
        }
    }

    /** Asks again until the condition holds. */
    void until(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + LIMIT_MS / 2 * 1_000_000;
        while (!holds.call()) {
            if (System.nanoTime() > deadline) {
                throw failed(what + ": never came to hold");
            }
            Thread.sleep(20);
        }
    }

    /** The exception of `call`, without the wrapping of futures; the check fails if there is none, or one of another class. */
    <E extends Throwable> E refused(String what, Class<E> kind, Callable<?> call) {
        Throwable thrown;
        try {
            Object result = call.call();
            throw failed(what + ": was not refused but gave " + result);
        } catch (FailedException failed) {
            throw failed;
        } catch (ExecutionException | CompletionException wrapped) {
            thrown = wrapped.getCause();
        } catch (Exception direct) {
            thrown = direct;
        }
        if (!kind.isInstance(thrown)) {
            FailedException failure = failed(what + ": refused with " + thrown + ", want " + kind.getSimpleName());
            failure.initCause(thrown);
            throw failure;
        }
        return kind.cast(thrown);
    }

    /** Records what was seen, to be compared with what the same check sees of another broker. */
    void fact(String name, Object value) {
        synchronized (facts) {
            facts.put(name, value);
        }
    }

    /** The ids of the broker's nodes. */
    List<Integer> nodes() {
        return IntStream.rangeClosed(1, bootstrap.split(",").length).boxed().toList();
    }

    /** Waits until every node knows a topic, which they learn one after the other. */
    void known(String topic) throws IOException {
        if (bootstrap.contains(",")) {
            ask("known " + topic);
        }
    }

    /** Has the harness make a topic or change a right; README.md has the words. */
    void ask(String what) throws IOException {
        equal(what, Checks.ask(what), "done");
    }

    /**
     * Has the harness end the broker, with SIGKILL ("kill") or SIGTERM ("terminate"), and start it again on its data;
     * returns when it is ready. The check is skipped when the broker is not the harness's own.
     */
    void restart(String how) throws IOException {
        String answer = Checks.ask(how);
        if (!"done".equals(answer)) {
            throw new SkippedException(answer == null ? "nobody restarts brokers here" : answer);
        }
    }
}
