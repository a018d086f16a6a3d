// 100 MiB live in 1 KiB blocks at each of five equal sites and 100 MiB live in 1 MiB blocks, beside 2 GiB
// of churn.
#include "target.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define SMALL_SITE(name)            \
    SITE void *name(void)           \
    {                               \
        void *block = malloc(KIB);  \
        AFTER_CALL();               \
        return block;               \
    }

SMALL_SITE(small_0)
SMALL_SITE(small_1)
SMALL_SITE(small_2)
SMALL_SITE(small_3)
SMALL_SITE(small_4)

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

// A hundredth of everything: 1 MiB alive at each small site, 1 MiB in one large block, 21 MiB of churn.
SITE void round_of_work(void)
{
    for (int i = 0; i < 1024; i++) {
        last = small_0();
        last = small_1();
        last = small_2();
        last = small_3();
        last = small_4();
    }
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
    say_site("small_0", 100 * MIB, 100 * 1024);
    say_site("small_1", 100 * MIB, 100 * 1024);
    say_site("small_2", 100 * MIB, 100 * 1024);
    say_site("small_3", 100 * MIB, 100 * 1024);
    say_site("small_4", 100 * MIB, 100 * 1024);
    say_site("large_block", 100 * MIB, 100);
    say_site("churn_small", 0, 0);
    say_site("churn_large", 0, 0);
    say("done");
    wait_for_line();
    return 0;
}
