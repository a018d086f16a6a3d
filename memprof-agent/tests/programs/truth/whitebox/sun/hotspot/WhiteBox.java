package sun.hotspot;

/** What HotSpot's own tests call; the virtual machine registers the methods that it knows. */
public final class WhiteBox {
    private static final WhiteBox INSTANCE = new WhiteBox();

    static {
        registerNatives();
    }

    private WhiteBox() {
    }

    public static WhiteBox getWhiteBox() {
        return INSTANCE;
    }

    private static native void registerNatives();

    /** Makes all frames of compiled methods, on all stacks, return into the deoptimisation handler. */
    public native void deoptimizeAll();
}
