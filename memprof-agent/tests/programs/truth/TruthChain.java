import java.util.Random;

/** One random path through {@link TruthSteps}; all blocks allocated at its end have one size, which no other has. */
public final class TruthChain {
    /** Bytes of the block: the identity of this chain. */
    final int size;
    /** Which steps are taken; even numbers are variant A of a kind, odd ones variant B. */
    public final byte[] steps;
    /** A class that lives as long as few chains do, or null. */
    final TruthStep generation;
    /** What to do at the end. */
    private Consequence consequence = Consequence.NOTHING;
    private int noise;

    private enum Consequence { NOTHING, WRITE_DOWN, ALLOCATE }

    TruthChain(int size, Random random, int[] kinds, TruthStep generation) {
        this.size = size;
        this.generation = generation;
        steps = new byte[14 + random.nextInt(8)];
        for (int i = 0; i < steps.length; i++) {
            steps[i] = (byte) (2 * kinds[random.nextInt(kinds.length)] + random.nextInt(2));
        }
    }

    /** Follows the path, often enough for compilers to notice it, and allocates at the end of it `times` times. */
    void use(int times, int dryRuns) {
        run(Consequence.WRITE_DOWN);
        for (int i = 0; i < times; i++) {
            for (int dry = 0; dry < dryRuns; dry++) {
                run(Consequence.NOTHING);
            }
            run(Consequence.ALLOCATE);
        }
        TruthLedger.count(size, times);
    }

    private void run(Consequence consequence) {
        this.consequence = consequence;
        TruthSteps.next(this, 0);
    }

    /** Whether the block will be allocated this time. */
    public boolean isInEarnest() {
        return consequence == Consequence.ALLOCATE;
    }

    /** True once in `period` calls. */
    public boolean rarely(int period) {
        noise = noise * 1103515245 + 12345;
        return (noise >>> 8) % period == 0;
    }

    /** The end of every path. */
    void finish() {
        switch (consequence) {
            case ALLOCATE:
                if (size / 8 % 2 == 0) {
                    TruthLedger.UNSAFE.freeMemory(TruthLedger.UNSAFE.allocateMemory(size));
                } else {
                    Truth.block(size);
                }
                break;
            case WRITE_DOWN:
                TruthLedger.writeDown(size);
                break;
            default:
                noise++;
        }
    }
}
