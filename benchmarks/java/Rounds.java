import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;

/**
 * A program that does the same piece of work again and again in one warm JVM: a round for each line
 * that it reads, a line that begins with {@code @} for each round done.
 */
final class Rounds {
    /** What one round read or wrote. */
    record Done(long messages, long bytes) {}

    /** The work of one round. */
    interface Work {
        Done run() throws Exception;
    }

    private Rounds() {}

    static void serve(Work work) {
        try {
            rounds(work);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1); // the clients' own threads would keep the process
        }
    }

    private static void rounds(Work work) throws Exception {
        System.out.println("@{\"ready\": true}");
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (input.readLine() != null) {
            long cpu = cpuNanos();
            long start = System.nanoTime();
            Done done = work.run();
            double wall = (System.nanoTime() - start) / 1e9;
            System.out.printf(
                    java.util.Locale.ROOT,
                    "@{\"messages\": %d, \"bytes\": %d, \"own_wall_s\": %.6f, \"own_cpu_s\": %.6f}%n",
                    done.messages(), done.bytes(), wall, (cpuNanos() - cpu) / 1e9);
            System.out.flush();
        }
    }

    private static long cpuNanos() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
