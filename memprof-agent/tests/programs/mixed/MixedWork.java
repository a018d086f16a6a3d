import java.util.function.IntUnaryOperator;

/** Work for the compilers, in a class that is loaded again and again. */
public final class MixedWork implements IntUnaryOperator {
    private final StringBuilder text = new StringBuilder();

    @Override
    public int applyAsInt(int i) {
        text.setLength(0);
        for (int k = 0; k < 20; k++) {
            add(i ^ k);
        }
        IntUnaryOperator last = k -> text.charAt(k % text.length());
        return last.applyAsInt(i);
    }

    private void add(int value) {
        text.append(value % 3 == 0 ? 'a' : (char) ('b' + (value & 7)));
    }
}
