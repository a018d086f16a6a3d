import java.lang.reflect.Method;

/** The kinds of calls that a path is made of, each in two variants, so that names tell paths apart. */
public final class TruthSteps {
    /** Kinds by number; {@link #next} takes step 2 * kind or 2 * kind + 1. */
    static final int PLAIN = 0, PAIR = 1, NODE = 2, LAMBDA = 3, LOCKED = 4, LONG = 5, CAUGHT = 6, LOOPED = 7,
            TRAPPED = 8, UPCALL = 9, REFLECTED = 10, GENERATION = 11, PARKED = 12, DEOPTIMISED = 13;

    /** What {@link #PARKED} does. */
    static Runnable park = Thread::yield;
    /** What {@link #DEOPTIMISED} does. */
    static Runnable deoptimise = () -> { };

    private static final TruthStep NODE_A = new NodeA(), NODE_B = new NodeB();
    private static final TruthStep LAMBDA_A = TruthSteps::lambdaA, LAMBDA_B = TruthSteps::lambdaB;
    private static final Method REFLECTED_A = method("reflectedA"), REFLECTED_B = method("reflectedB");
    private static volatile int sink;

    private TruthSteps() {
    }

    public static void next(TruthChain chain, int depth) {
        if (depth == chain.steps.length) {
            chain.finish();
            return;
        }
        int step = chain.steps[depth++];
        switch (step) {
            case 2 * PLAIN: plainA(chain, depth); break;
            case 2 * PLAIN + 1: plainB(chain, depth); break;
            case 2 * PAIR: pairA(chain, depth); break;
            case 2 * PAIR + 1: pairB(chain, depth); break;
            case 2 * NODE: NODE_A.step(chain, depth); break;
            case 2 * NODE + 1: NODE_B.step(chain, depth); break;
            case 2 * LAMBDA: LAMBDA_A.step(chain, depth); break;
            case 2 * LAMBDA + 1: LAMBDA_B.step(chain, depth); break;
            case 2 * LOCKED: lockedA(chain, depth); break;
            case 2 * LOCKED + 1: new NodeB().lockedB(chain, depth); break;
            case 2 * LONG: longA(1, 2.0, 3, 4.0, 5L, 6.0f, 7, 8, 9L, 10, 11.0, 12L, chain, depth, "15"); break;
            case 2 * LONG + 1: longB(chain, depth, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L, 10L, 11L, 12L, 13L); break;
            case 2 * CAUGHT: caughtA(chain, depth); break;
            case 2 * CAUGHT + 1: caughtB(chain, depth); break;
            case 2 * LOOPED: loopedA(chain, depth); break;
            case 2 * LOOPED + 1: loopedB(chain, depth); break;
            case 2 * TRAPPED: trappedA(chain, depth); break;
            case 2 * TRAPPED + 1: trappedB(chain, depth, chain.rarely(97) ? "a string" : (Object) depth); break;
            case 2 * UPCALL: Truth.upA(chain, depth); break;
            case 2 * UPCALL + 1: Truth.upB(chain, depth, 7L, 7L, 7L, 7L, 7L, 7L, 7L); break;
            case 2 * REFLECTED: call(REFLECTED_A, chain, depth); break;
            case 2 * REFLECTED + 1: call(REFLECTED_B, chain, depth); break;
            case 2 * GENERATION: case 2 * GENERATION + 1: chain.generation.step(chain, depth); break;
            case 2 * PARKED: parkedA(chain, depth); break;
            case 2 * PARKED + 1: parkedB(chain, depth); break;
            case 2 * DEOPTIMISED: deoptimisedA(chain, depth); break;
            case 2 * DEOPTIMISED + 1: deoptimisedB(chain, depth); break;
            default: throw new IllegalStateException("step " + step);
        }
    }

    private static void plainA(TruthChain chain, int depth) { next(chain, depth); }

    private static void plainB(TruthChain chain, int depth) { next(chain, depth); }

    /** Two methods that call themselves and each other without {@link #next} in between. */
    private static void pairA(TruthChain chain, int depth) {
        int step = depth < chain.steps.length ? chain.steps[depth] : -1;
        if (step == 2 * PAIR) {
            pairA(chain, depth + 1);
        } else if (step == 2 * PAIR + 1) {
            pairB(chain, depth + 1);
        } else {
            next(chain, depth);
        }
    }

    private static void pairB(TruthChain chain, int depth) {
        int step = depth < chain.steps.length ? chain.steps[depth] : -1;
        if (step == 2 * PAIR) {
            pairA(chain, depth + 1);
        } else if (step == 2 * PAIR + 1) {
            pairB(chain, depth + 1);
        } else {
            next(chain, depth);
        }
    }

    private static final class NodeA implements TruthStep {
        @Override
        public void step(TruthChain chain, int depth) { next(chain, depth); }
    }

    private static final class NodeB implements TruthStep {
        @Override
        public void step(TruthChain chain, int depth) { next(chain, depth); }

        synchronized void lockedB(TruthChain chain, int depth) {
            next(chain, depth);
            sink++;
        }
    }

    private static void lambdaA(TruthChain chain, int depth) { next(chain, depth); }

    private static void lambdaB(TruthChain chain, int depth) { next(chain, depth); }

    private static void lockedA(TruthChain chain, int depth) {
        Object own = new Object();
        synchronized (own) {
            next(chain, depth);
            sink++;
        }
    }

    /** More arguments than registers: the caller's frame grows when an interpreted method calls compiled code. */
    private static void longA(int a, double b, int c, double d, long e, float f, int g, int h, long i, int j, double k,
            long l, TruthChain chain, int depth, String n) {
        next(chain, depth);
        sink += a + (int) b + c + (int) d + (int) e + (int) f + g + h + (int) i + j + (int) k + (int) l + n.length();
    }

    private static void longB(TruthChain chain, int depth, long a, long b, long c, long d, long e, long f, long g,
            long h, long i, long j, long k, long l, long m) {
        next(chain, depth);
        sink += (int) (a + b + c + d + e + f + g + h + i + j + k + l + m);
    }

    private static void caughtA(TruthChain chain, int depth) {
        try {
            fail(depth);
        } catch (IllegalStateException e) {
            next(chain, depth);
        }
    }

    private static void caughtB(TruthChain chain, int depth) {
        try {
            sink += depth / (depth - depth);
        } catch (ArithmeticException e) {
            next(chain, depth);
        } finally {
            sink++;
        }
    }

    private static void fail(int depth) { throw new IllegalStateException(); }

    /** Loops that are compiled while they run. */
    private static void loopedA(TruthChain chain, int depth) {
        int rounds = chain.rarely(500) ? 100_000 : 10;
        int sum = 0;
        for (int i = 0; i <= rounds; i++) {
            sum += i * depth;
            if (i == rounds) {
                next(chain, depth);
            }
        }
        sink += sum;
    }

    private static void loopedB(TruthChain chain, int depth) {
        int rounds = chain.rarely(700) ? 70_000 : 5;
        double sum = depth;
        do {
            sum = sum * 0.5 + rounds;
            if (rounds == 0) {
                next(chain, depth);
            }
        } while (rounds-- > 0);
        sink += (int) sum;
    }

    /** Compiled code leaves for the interpreter where it meets what it has never seen. */
    private static void trappedA(TruthChain chain, int depth) {
        if (chain.rarely(997)) {
            sink += chain.toString().length();
        }
        next(chain, depth);
    }

    private static void trappedB(TruthChain chain, int depth, Object value) {
        sink += value instanceof Integer ? (Integer) value : value.hashCode();
        next(chain, depth);
    }

    static void reflectedA(TruthChain chain, int depth) { next(chain, depth); }

    static void reflectedB(TruthChain chain, int depth) { next(chain, depth); }

    private static void parkedA(TruthChain chain, int depth) {
        if (chain.isInEarnest()) {
            park.run();
        }
        next(chain, depth);
    }

    private static void parkedB(TruthChain chain, int depth) {
        if (chain.isInEarnest() || chain.rarely(50)) {
            park.run();
        }
        next(chain, depth);
    }

    private static void deoptimisedA(TruthChain chain, int depth) {
        if (chain.isInEarnest()) {
            deoptimise.run();
        }
        next(chain, depth);
    }

    private static void deoptimisedB(TruthChain chain, int depth) {
        next(chain, depth);
        if (chain.isInEarnest()) {
            deoptimise.run();
        }
    }

    private static void call(Method method, TruthChain chain, int depth) {
        try {
            method.invoke(null, chain, depth);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Method method(String name) {
        try {
            return TruthSteps.class.getDeclaredMethod(name, TruthChain.class, int.class);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
