/** A step that is taken through an interface. */
public interface TruthStep {
    /** Goes on at `depth`. */
    void step(TruthChain chain, int depth);
}
