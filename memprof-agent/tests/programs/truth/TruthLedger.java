import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** What is true of every chain: its Java frames, as the virtual machine itself tells them, and its blocks. */
final class TruthLedger {
    static final sun.misc.Unsafe UNSAFE = unsafe();

    private static final Map<Integer, String> FRAMES = new ConcurrentHashMap<>();
    private static final Map<Integer, Integer> BLOCKS = new ConcurrentHashMap<>();
    /** Frames of hidden classes are frames, too. */
    private static final StackWalker WALKER = StackWalker.getInstance(StackWalker.Option.SHOW_HIDDEN_FRAMES);

    private TruthLedger() {
    }

    /** Notes the frames of the caller, innermost first, as `class.method:line` with tabs in between. */
    static void writeDown(int size) {
        List<String> frames = new ArrayList<>();
        WALKER.forEach(frame -> frames.add(
                frame.getClassName() + "." + frame.getMethodName() + ":" + frame.getLineNumber()));
        FRAMES.put(size, String.join("\t", frames.subList(1, frames.size())));
    }

    static void count(int size, int blocks) {
        BLOCKS.merge(size, blocks, Integer::sum);
    }

    /** Writes a line for each chain: bytes, blocks, and frames. */
    static void save(Path file) {
        List<String> lines = new ArrayList<>();
        BLOCKS.forEach((size, blocks) -> lines.add(size + "\t" + blocks + "\t" + FRAMES.get(size)));
        try {
            Files.write(file, lines);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static int blocks() {
        return BLOCKS.values().stream().mapToInt(Integer::intValue).sum();
    }

    private static sun.misc.Unsafe unsafe() {
        try {
            java.lang.reflect.Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (sun.misc.Unsafe) field.get(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
