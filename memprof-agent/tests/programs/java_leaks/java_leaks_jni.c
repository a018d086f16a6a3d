// The native side of JavaLeaks.java.
#include <jni.h>
#include <stdlib.h>

#include "target.h"

SITE void *lost_block(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

JNIEXPORT jlong JNICALL Java_JavaLeaks_keep(JNIEnv *env, jclass class, jint bytes)
{
    (void)env;
    (void)class;
    void *block = lost_block((size_t)bytes);
    AFTER_CALL();
    return (jlong)block;
}
