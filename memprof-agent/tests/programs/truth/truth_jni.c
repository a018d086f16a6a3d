// The native side of Truth.java: blocks, and calls back into Java.
#include <jni.h>
#include <stdlib.h>

#include "target.h"

SITE void *truth_block(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

JNIEXPORT void JNICALL Java_Truth_block(JNIEnv *env, jclass class, jint bytes)
{
    (void)env;
    (void)class;
    free(truth_block((size_t)bytes));
    AFTER_CALL();
}

static void next_step(JNIEnv *env, jobject chain, jint depth)
{
    jclass steps = (*env)->FindClass(env, "TruthSteps");
    jmethodID next = (*env)->GetStaticMethodID(env, steps, "next", "(LTruthChain;I)V");
    (*env)->CallStaticVoidMethod(env, steps, next, chain, depth);
    AFTER_CALL();
}

JNIEXPORT void JNICALL Java_Truth_upA(JNIEnv *env, jclass class, jobject chain, jint depth)
{
    (void)class;
    next_step(env, chain, depth);
    AFTER_CALL();
}

// Arguments on the stack: the wrapper's frame is larger.
JNIEXPORT void JNICALL Java_Truth_upB(JNIEnv *env, jclass class, jobject chain, jint depth, jlong a, jlong b,
                                      jlong c, jlong d, jlong e, jlong f, jlong g)
{
    (void)class;
    if (a + b + c + d + e + f + g == 49)
        next_step(env, chain, depth);
    AFTER_CALL();
}
