import java.util.concurrent.atomic.AtomicInteger;

/** Makes the virtual machine give up all its compiled code, through the interface that its own tests use. */
final class Deoptimiser {
    private Deoptimiser() {
    }

    /** Needs -XX:+WhiteBoxAPI, and the class on the boot class path. */
    static Runnable find() throws Exception {
        Class<?> whiteBox;
        try {
            whiteBox = Class.forName("jdk.test.whitebox.WhiteBox");
            whiteBox.getMethod("getWhiteBox").invoke(null);
        } catch (ReflectiveOperationException | LinkageError e) {
            whiteBox = Class.forName("sun.hotspot.WhiteBox");
        }
        Object box = whiteBox.getMethod("getWhiteBox").invoke(null);
        java.lang.reflect.Method deoptimiseAll = whiteBox.getMethod("deoptimizeAll");
        AtomicInteger calls = new AtomicInteger();
        return () -> {
            try {
                // It stops all threads and voids all code: most runs must get on without it.
                if (calls.incrementAndGet() % 64 == 0) {
                    deoptimiseAll.invoke(box);
                }
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        };
    }
}
