// The native side of Work.java.
#include <jni.h>
#include <stdlib.h>

#include "target.h"

SITE void *keep_native(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

SITE void *churn_native(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

JNIEXPORT jlong JNICALL Java_Work_keep(JNIEnv *env, jclass class, jint bytes)
{
    (void)env;
    (void)class;
    void *block = keep_native((size_t)bytes);
    AFTER_CALL();
    return (jlong)block;
}

JNIEXPORT void JNICALL Java_Work_churn(JNIEnv *env, jclass class, jint bytes)
{
    (void)env;
    (void)class;
    free(churn_native((size_t)bytes));
    AFTER_CALL();
}
