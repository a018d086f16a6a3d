import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.zip.Inflater;

/** Native memory that Java programs never give back, each kind in a method of its own. */
public final class JavaLeaks {
    private static final int INFLATERS = 300;
    private static final int BUFFERS = 40;
    private static final int READERS = 6;
    private static final int NATIVE_BLOCKS = 250;
    private static final int BIG = 1 << 20;
    private static final int NATIVE_BYTES = 8192;

    private static final List<Object> kept = new ArrayList<>();

    static native long keep(int bytes);

    /** Nobody calls {@link Inflater#end}. */
    private static void forgetInflaters() {
        for (int i = 0; i < INFLATERS; i++) {
            kept.add(new Inflater());
        }
    }

    private static void keepDirectBuffers() {
        for (int i = 0; i < BUFFERS; i++) {
            kept.add(ByteBuffer.allocateDirect(BIG));
        }
    }

    private static void loseNativeBlocks() {
        for (int i = 0; i < NATIVE_BLOCKS; i++) {
            keep(NATIVE_BYTES);
        }
    }

    /** Each thread that reads a file into a buffer on the heap keeps a direct buffer of that size to itself. */
    private static void readIntoHeapBuffers(Path file) throws Exception {
        CountDownLatch done = new CountDownLatch(READERS);
        for (int i = 0; i < READERS; i++) {
            Thread thread = new Thread(() -> {
                readOnce(file);
                done.countDown();
                try {
                    Thread.sleep(600_000);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        done.await();
    }

    private static void readOnce(Path file) {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            channel.read(ByteBuffer.allocate(BIG), 0);
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    /** Gives the compilers work, which takes memory of their own. */
    private static int compileMuch() {
        int sum = 0;
        for (int i = 0; i < 40_000; i++) {
            sum += String.format("%d %s", i, i % 7 == 0 ? "seven" : "other").hashCode();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        Path library = Path.of(arguments[0], "libjavaleaks.so");
        System.load(library.toString());
        System.out.println("ready");
        waitForLine();
        forgetInflaters();
        keepDirectBuffers();
        loseNativeBlocks();
        readIntoHeapBuffers(library);
        kept.add(compileMuch());
        System.out.println("value inflaters " + INFLATERS);
        System.out.println("value buffers " + BUFFERS);
        System.out.println("value readers " + READERS);
        System.out.println("value big " + BIG);
        System.out.println("value native_bytes " + (long) NATIVE_BLOCKS * NATIVE_BYTES);
        System.out.println("done");
        waitForLine();
        System.exit(0);
    }

    private static void waitForLine() throws Exception {
        int read;
        do {
            read = System.in.read();
        } while (read != '\n' && read != -1);
    }
}
