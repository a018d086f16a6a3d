// 100 MiB live in 1 KiB blocks and 100 MiB live in 1 MiB blocks beside 2 GiB of churn.
#include "target.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

SITE void *small_block(void)
{
    void *block = malloc(KIB);
    AFTER_CALL();
    return block;
}

SITE void *large_block(void)
{
    void *block = malloc(MIB);
    AFTER_CALL();
    return block;
}

SITE void *churn_small(void)
{
    void *block = malloc(16 * KIB);
    AFTER_CALL();
    return block;
}

SITE void *churn_large(void)
{
    void *block = malloc(MIB);
    AFTER_CALL();
    return block;
}

static void *volatile last;

// A hundredth of everything: 1 MiB alive in small blocks, 1 MiB in one large block, 21 MiB of churn.
SITE void round_of_work(void)
{
    for (int i = 0; i < 1024; i++)
        last = small_block();
    last = large_block();
    for (int i = 0; i < 320; i++)
        free(churn_small());
    for (int i = 0; i < 16; i++)
        free(churn_large());
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < 100; i++) {
        round_of_work();
        if (i % 10 == 9)
            usleep(1000);
    }
    say_site("small_block", 100 * MIB, 100 * 1024);
    say_site("large_block", 100 * MIB, 100);
    say("value churn_small_bytes %zu", 100 * 320 * 16 * KIB);
    say("value churn_large_bytes %zu", 100 * 16 * MIB);
    say("done");
    wait_for_line();
    return 0;
}
