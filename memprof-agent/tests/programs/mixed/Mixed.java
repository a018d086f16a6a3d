import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.function.IntUnaryOperator;
import java.util.zip.Deflater;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import java.util.zip.Inflater;

/**
 * What servers do with native memory, all at once: compression, files, buffers, native code, and classes that are
 * loaded, compiled and dropped again.
 *
 * <p>Arguments: the directory of the classes and of libmixed.so, and how many rounds each thread makes.
 */
public final class Mixed {
    private static volatile Object last;
    private static volatile int sum;

    static native void churn(int bytes);

    private static void zip(int round) throws Exception {
        byte[] input = new byte[4000 + round];
        byte[] output = new byte[5000 + round];
        Deflater deflater = new Deflater(round % 9 + 1, round % 2 == 0);
        deflater.setInput(input);
        deflater.finish();
        int length = deflater.deflate(output);
        deflater.end();
        Inflater inflater = new Inflater(round % 2 == 0);
        inflater.setInput(output, 0, length);
        inflater.inflate(input);
        inflater.end();
    }

    private static void gzip(int round) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (GZIPOutputStream out = new GZIPOutputStream(bytes)) {
            out.write(new byte[3000 + 7 * round]);
        }
        try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
            last = in.readAllBytes();
        }
    }

    private static void files(Path file, int round) throws Exception {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            channel.read(ByteBuffer.allocate(16384 + 64 * round), 0);
        }
        last = ByteBuffer.allocateDirect(4096 + round);
    }

    /** A new copy of a class, run until compilers take it. */
    private static void classes(URL directory, int round) throws Exception {
        try (URLClassLoader loader = new URLClassLoader(new URL[] {directory}, null)) {
            IntUnaryOperator work = (IntUnaryOperator)
                    loader.loadClass("MixedWork").getConstructor().newInstance();
            for (int i = 0; i < 3000; i++) {
                sum += work.applyAsInt(i);
            }
        }
        if (round % 100 == 99) {
            System.gc();
        }
    }

    private interface Round {
        void run(int round) throws Exception;
    }

    private static Thread start(String name, int rounds, Round task) {
        Thread thread = new Thread(() -> {
            try {
                for (int i = 0; i < rounds; i++) {
                    task.run(i);
                    if (i % 8 == 7) {
                        Thread.sleep(2);
                    }
                }
            } catch (Throwable e) {
                e.printStackTrace();
                System.exit(1);
            }
        }, name);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]);
        Path library = directory.resolve("libmixed.so");
        System.load(library.toString());
        URL classes = directory.toUri().toURL();
        System.out.println("ready");
        waitForLine();
        Thread[] threads = {
            start("zip", rounds, Mixed::zip), start("gzip", rounds, Mixed::gzip),
            start("files", rounds, round -> files(library, round)),
            start("native", rounds, round -> churn(20_000 + round)),
            start("classes", rounds / 5, round -> classes(classes, round))
        };
        for (Thread thread : threads) {
            thread.join();
        }
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
