import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import java.util.zip.Deflater;

/**
 * A JVM that allocates native memory at a steady rate, from some depth of Java calls, and gives it back.
 *
 * <p>Arguments: rounds a second (each allocates a few blocks), and milliseconds between redeployments, after
 * which the calls go through classes of a new loader and the old ones may be unloaded; 0 = never.
 *
 * <p>For each line on standard input it prints the longest gap in a busy thread in microseconds, the rounds and
 * the redeployments since the last line.
 */
public final class JavaLoad {
    /** Loads its own copies of the classes below. */
    private static final class Deployment extends ClassLoader {
        Deployment() {
            super(null);
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            try (var bytes = JavaLoad.class.getResourceAsStream("/" + name.replace('.', '/') + ".class")) {
                if (bytes == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] all = bytes.readAllBytes();
                return defineClass(name, all, 0, all.length);
            } catch (java.io.IOException e) {
                throw new ClassNotFoundException(name, e);
            }
        }
    }

    /** What is redeployed: a chain of calls that ends in native allocations. */
    public static final class Service implements LongSupplier {
        @Override
        public long getAsLong() {
            return descend(12);
        }

        private long descend(int depth) {
            if (depth > 0) {
                return ((depth & 1) == 0 ? descend(depth - 1) : viaLambda(depth - 1)) + depth;
            }
            var deflater = new Deflater();
            deflater.end();
            return 1;
        }

        private long viaLambda(int depth) {
            LongSupplier next = () -> descend(depth);
            return next.getAsLong();
        }
    }

    private static final AtomicLong rounds = new AtomicLong();
    private static final AtomicLong redeployments = new AtomicLong();
    private static final AtomicLong longestGap = new AtomicLong();
    private static volatile LongSupplier service;

    public static void main(String[] arguments) throws Exception {
        long perSecond = Long.parseLong(arguments[0]);
        long redeployMillis = Long.parseLong(arguments[1]);
        service = deploy();
        start("worker", () -> work(perSecond));
        start("busy", JavaLoad::spin);
        if (redeployMillis > 0) {
            start("redeploy", () -> redeploy(redeployMillis));
        }
        System.out.println("ready");
        var input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println(
                    longestGap.getAndSet(0) / 1000 + " " + rounds.getAndSet(0) + " " + redeployments.getAndSet(0));
        }
        System.exit(0);
    }

    private static void start(String name, Runnable body) {
        var thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static LongSupplier deploy() {
        try {
            Class<?> loaded = new Deployment().loadClass(Service.class.getName());
            return (LongSupplier) loaded.getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException | NoSuchMethodException | InstantiationException | IllegalAccessException
                | InvocationTargetException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void work(long perSecond) {
        long next = System.nanoTime();
        while (true) {
            service.getAsLong();
            rounds.incrementAndGet();
            next += 1_000_000_000L / perSecond;
            while (next > System.nanoTime()) {
                LockSupport.parkNanos(next - System.nanoTime());
            }
        }
    }

    private static void redeploy(long millis) {
        while (true) {
            LockSupport.parkNanos(millis * 1_000_000);
            service = deploy();
            if (redeployments.incrementAndGet() % 20 == 0) {
                System.gc();
            }
        }
    }

    /** Busy a fifth of the time, so that the other threads have a processor. */
    private static void spin() {
        while (true) {
            long until = System.nanoTime() + 20_000_000;
            long last = System.nanoTime();
            while (last < until) {
                long now = System.nanoTime();
                if (now - last > longestGap.get()) {
                    longestGap.set(now - last);
                }
                last = now;
            }
            LockSupport.parkNanos(80_000_000);
        }
    }
}
