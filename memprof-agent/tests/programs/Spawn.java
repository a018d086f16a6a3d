// A JVM that starts processes all the time and keeps memory of known size outside of its heap.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

final class Spawn {
    private static final int ROUNDS = 40;
    private static final int BYTES = 1 << 20;
    private static final List<ByteBuffer> kept = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        System.in.read();
        for (int i = 0; i < ROUNDS; i++) {
            kept.add(ByteBuffer.allocateDirect(BYTES));
            if (new ProcessBuilder("/bin/true").start().waitFor() != 0)
                System.exit(3);
        }
        System.out.println("value children " + ROUNDS);
        System.out.println("value bytes " + (long) ROUNDS * BYTES);
        System.out.println("done");
        while (System.in.read() >= 0) {
        }
    }
}
