import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/** Three threads that use native memory through zlib, through NIO and through JNI. */
public final class Work {
    private static final int ROUNDS = 1500;
    private static final int KEPT_BYTES = 8192;

    static native long keep(int bytes);

    static native void churn(int bytes);

    private static volatile Object last;

    private static void zip() throws Exception {
        byte[] input = new byte[4000];
        byte[] output = new byte[5000];
        for (int i = 0; i < ROUNDS; i++) {
            Deflater deflater = new Deflater(i % 9 + 1, i % 2 == 0);
            deflater.setInput(input);
            deflater.finish();
            int length = deflater.deflate(output);
            deflater.end();
            Inflater inflater = new Inflater(i % 2 == 0);
            inflater.setInput(output, 0, length);
            inflater.inflate(input);
            inflater.end();
            pause(i);
        }
    }

    /** A heap buffer makes NIO take a temporary direct one, which is a new block when the cached one is too small. */
    private static void nio(Path file) throws Exception {
        for (int i = 0; i < ROUNDS; i++) {
            try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
                channel.read(ByteBuffer.allocate(16384 + 64 * i), 0);
            }
            last = ByteBuffer.allocateDirect(4096 + i);
            pause(i);
        }
    }

    private static void jni() throws Exception {
        for (int i = 0; i < ROUNDS; i++) {
            keep(KEPT_BYTES);
            churn(20000);
            pause(i);
        }
    }

    private static void pause(int round) throws Exception {
        if (round % 8 == 7) {
            Thread.sleep(2);
        }
    }

    private interface Task {
        void run() throws Exception;
    }

    private static Thread start(String name, Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }, name);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        Path library = Path.of(arguments[0], "libwork.so");
        System.load(library.toString());
        System.out.println("ready");
        waitForLine();
        Thread[] threads = {
            start("zip", Work::zip), start("nio", () -> nio(library)), start("jni", Work::jni)
        };
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("site keep_native " + (long) ROUNDS * KEPT_BYTES + " " + ROUNDS);
        System.out.println("site churn_native 0 0");
        System.out.println("done");
        waitForLine();
    }

    private static void waitForLine() throws Exception {
        int read;
        do {
            read = System.in.read();
        } while (read != '\n' && read != -1);
    }
}
