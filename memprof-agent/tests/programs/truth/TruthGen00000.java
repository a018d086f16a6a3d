/** A class that is loaded again and again: each time with another number in place of the zeros in all names. */
public class TruthGen00000 implements TruthStep {
    private static int sum;

    /** Loads {@link TruthSub00000}, after which compiled code that took this class for a leaf is void. */
    private Runnable late;

    public TruthGen00000(Runnable late) {
        this.late = late;
    }

    @Override
    public void step(TruthChain chain, int depth) {
        if (chain.steps[depth - 1] % 2 == 0) {
            m00000A(chain, depth);
        } else {
            m00000B(chain, depth);
        }
        sum++;
    }

    void m00000A(TruthChain chain, int depth) {
        for (int i = 0; i < 50; i++) {
            sum += i ^ depth;
        }
        if (chain.rarely(300)) {
            sum -= chain.toString().length();
        }
        TruthSteps.next(chain, depth);
    }

    synchronized void m00000B(TruthChain chain, int depth) {
        if (chain.isInEarnest() && late != null) {
            late.run();
            late = null;
        }
        TruthSteps.next(chain, depth);
    }
}

final class TruthSub00000 extends TruthGen00000 {
    private TruthSub00000() {
        super(null);
    }

    @Override
    void m00000A(TruthChain chain, int depth) {
        throw new IllegalStateException();
    }

    @Override
    void m00000B(TruthChain chain, int depth) {
        throw new IllegalStateException();
    }
}
