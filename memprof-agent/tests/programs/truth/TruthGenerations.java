import java.lang.invoke.MethodHandles;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;

/** Copies of TruthGen00000 under other names, each with a class loader of its own or hidden. */
final class TruthGenerations {
    private static final AtomicInteger NEXT = new AtomicInteger(1);

    private final byte[] classFile;
    private final byte[] subclassFile;
    private final boolean hidden;

    TruthGenerations(Path directory, boolean hidden) throws Exception {
        classFile = Files.readAllBytes(directory.resolve("TruthGen00000.class"));
        subclassFile = Files.readAllBytes(directory.resolve("TruthSub00000.class"));
        this.hidden = hidden;
    }

    /** An object of a new class. Its code and names are freed some time after the object has gone. */
    TruthStep next() throws Exception {
        // Formatting would load locales, which may have been removed from the disk.
        String number = Integer.toString(100_000 + NEXT.getAndIncrement() % 100_000).substring(1);
        if (hidden) {
            return (TruthStep) hiddenClass(renamed(classFile, number)).getConstructor(Runnable.class).newInstance(
                    (Runnable) null);
        }
        Loader loader = new Loader();
        Constructor<?> constructor = loader.define(renamed(classFile, number)).getConstructor(Runnable.class);
        byte[] subclass = renamed(subclassFile, number);
        return (TruthStep) constructor.newInstance((Runnable) () -> loader.load(subclass));
    }

    /** Hidden classes came with JDK 15; this program is compiled for older ones, too. */
    private static Class<?> hiddenClass(byte[] bytes) throws Exception {
        Class<?> options = Class.forName("java.lang.invoke.MethodHandles$Lookup$ClassOption");
        Object none = java.lang.reflect.Array.newInstance(options, 0);
        Method define = MethodHandles.Lookup.class.getMethod(
                "defineHiddenClass", byte[].class, boolean.class, none.getClass());
        return ((MethodHandles.Lookup) define.invoke(MethodHandles.lookup(), bytes, true, none)).lookupClass();
    }

    /** The class file with `number` instead of `00000`; both are five bytes, so nothing moves. */
    private static byte[] renamed(byte[] classFile, String number) {
        String text = new String(classFile, StandardCharsets.ISO_8859_1);
        return text.replace("00000", number).getBytes(StandardCharsets.ISO_8859_1);
    }

    private static final class Loader extends ClassLoader {
        Loader() {
            super(TruthGenerations.class.getClassLoader());
        }

        Class<?> define(byte[] bytes) {
            return defineClass(null, bytes, 0, bytes.length);
        }

        synchronized void load(byte[] bytes) {
            resolveClass(define(bytes));
        }
    }
}
