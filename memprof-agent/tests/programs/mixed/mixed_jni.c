// The native side of Mixed.java.
#include <jni.h>
#include <stdlib.h>

#include "target.h"

SITE void *churn_native(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

JNIEXPORT void JNICALL Java_Mixed_churn(JNIEnv *env, jclass class, jint bytes)
{
    (void)env;
    (void)class;
    free(churn_native((size_t)bytes));
    AFTER_CALL();
}
