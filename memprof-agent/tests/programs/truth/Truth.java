import java.nio.file.Path;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Threads that allocate native blocks through random paths of Java calls. The size of a block tells its path.
 *
 * <p>Arguments: the directory with libtruth.so and the classes, how many blocks, a mode, and where to write the truth.
 */
public final class Truth {
    private static final int THREADS = 3;
    /** Larger than nearly all blocks of a virtual machine; sizes are multiples of a word. */
    private static final int SMALLEST = 33_000;
    private static final int BLOCKS_PER_CHAIN = 4;
    private static final AtomicInteger NEXT_CHAIN = new AtomicInteger();

    private final TruthGenerations generations;
    private final String mode;
    private final int[] kinds;
    private final int chainsPerGeneration;

    private Truth(TruthGenerations generations, String mode) {
        this.generations = generations;
        this.mode = mode;
        int[] usual = {
            TruthSteps.PLAIN, TruthSteps.PAIR, TruthSteps.NODE, TruthSteps.LAMBDA, TruthSteps.LOCKED, TruthSteps.LONG,
            TruthSteps.CAUGHT, TruthSteps.LOOPED, TruthSteps.TRAPPED, TruthSteps.UPCALL, TruthSteps.REFLECTED,
            TruthSteps.GENERATION
        };
        kinds = mode.equals("deopt") ? with(usual, TruthSteps.DEOPTIMISED) : usual;
        chainsPerGeneration = mode.equals("unload") || mode.equals("hidden") ? 2 : 40;
    }

    static native void block(int bytes);

    static native void upA(TruthChain chain, int depth);

    static native void upB(TruthChain chain, int depth, long a, long b, long c, long d, long e, long f, long g);

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        int blocks = Integer.parseInt(arguments[1]);
        String mode = arguments[2];
        System.load(directory.resolve("libtruth.so").toString());
        Truth truth = new Truth(new TruthGenerations(directory, mode.equals("hidden")), mode);
        truth.prepare();
        System.out.println("ready");
        waitForLine();
        if (mode.equals("virtual")) {
            truth.virtualThreads(blocks);
        } else {
            truth.threads(blocks);
        }
        TruthLedger.save(Path.of(arguments[3]));
        System.out.println("value blocks " + TruthLedger.blocks());
        System.out.println("done");
        waitForLine();
    }

    private void prepare() throws Exception {
        if (mode.equals("deopt")) {
            TruthSteps.deoptimise = Deoptimiser.find();
        }
        if (mode.equals("unload") || mode.equals("hidden")) {
            daemon(() -> {
                for (;;) {
                    Thread.sleep(50);
                    System.gc();
                }
            });
        }
    }

    private void threads(int blocks) throws Exception {
        int each = blocks / THREADS / BLOCKS_PER_CHAIN;
        Thread[] threads = new Thread[THREADS];
        for (int i = 0; i < THREADS; i++) {
            Random random = new Random(i);
            threads[i] = new Thread(checked(() -> chains(random, each)), "truth " + i);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void chains(Random random, int count) throws Exception {
        TruthStep generation = null;
        for (int i = 0; i < count; i++) {
            if (i % chainsPerGeneration == 0) {
                generation = generations.next();
            }
            chain(random, kinds, generation).use(BLOCKS_PER_CHAIN, 12);
            Thread.sleep(2);
        }
    }

    private static TruthChain chain(Random random, int[] kinds, TruthStep generation) {
        return new TruthChain(SMALLEST + 8 * NEXT_CHAIN.getAndIncrement(), random, kinds, generation);
    }

    /** One virtual thread per chain, a few at a time. They came with JDK 21; this is compiled for older ones. */
    private void virtualThreads(int blocks) throws Exception {
        TruthSteps.park = checked(() -> Thread.sleep(1));
        java.lang.reflect.Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        int atATime = 12;
        // A thread with a native frame or, before JDK 24, a lock on its stack keeps its carrier when it parks.
        int[][] sets = {
            with(kinds, TruthSteps.PARKED),
            {
                TruthSteps.PLAIN, TruthSteps.PAIR, TruthSteps.NODE, TruthSteps.LAMBDA, TruthSteps.LONG, TruthSteps.CAUGHT,
                TruthSteps.LOOPED, TruthSteps.TRAPPED, TruthSteps.PARKED
            }
        };
        Random random = new Random(7);
        for (int i = 0; i < blocks / BLOCKS_PER_CHAIN; i += atATime) {
            Thread[] threads = new Thread[atATime];
            for (int k = 0; k < atATime; k++) {
                // A generation of its own: others could wait for its lock while they keep all carriers.
                TruthChain chain = chain(random, sets[Math.min(k % 4, 1)], generations.next());
                threads[k] = (Thread) start.invoke(null, (Runnable) () -> chain.use(BLOCKS_PER_CHAIN, 12));
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
    }

    private static int[] with(int[] kinds, int more) {
        int[] all = java.util.Arrays.copyOf(kinds, kinds.length + 1);
        all[kinds.length] = more;
        return all;
    }

    private interface Task {
        void run() throws Exception;
    }

    private static Runnable checked(Task task) {
        return () -> {
            try {
                task.run();
            } catch (Throwable e) {
                e.printStackTrace();
                System.exit(1);
            }
        };
    }

    private static void daemon(Task task) {
        Thread thread = new Thread(checked(task));
        thread.setDaemon(true);
        thread.start();
    }

    private static void waitForLine() throws Exception {
        int read;
        do {
            read = System.in.read();
        } while (read != '\n' && read != -1);
    }
}
