// Calls that return no memory under an address space limit, beside blocks that are really handed out.
#include "target.h"

#include <stdint.h>
#include <sys/resource.h>

enum { TIMES = 500 };

// Too large for the compiler to see.
static volatile size_t huge = (size_t)1 << 40;
static volatile size_t beyond = SIZE_MAX / 2 + 2;

SITE int try_huge(void)
{
    int failed = 0;
    void *block = NULL;
    failed += malloc(huge) == NULL;
    failed += malloc(beyond) == NULL;
    failed += calloc(huge, huge) == NULL;
    failed += calloc(1, huge) == NULL;
    failed += realloc(NULL, huge) == NULL;
    failed += aligned_alloc(64, huge) == NULL;
    failed += posix_memalign(&block, 64, huge) != 0;
    failed += posix_memalign(&block, 3, 10) != 0;
    AFTER_CALL();
    return failed;
}

SITE void *real_block(void)
{
    void *block = malloc(321);
    AFTER_CALL();
    return block;
}

static void *volatile last;

int main(void)
{
    struct rlimit limit = { (rlim_t)1 << 30, (rlim_t)1 << 30 };
    if (setrlimit(RLIMIT_AS, &limit))
        return 2;
    say("ready");
    wait_for_line();
    size_t failed = 0;
    for (int i = 0; i < TIMES; i++) {
        failed += (size_t)try_huge();
        last = real_block();
    }
    say("value failed %zu", failed);
    say_site("try_huge", 0, 0);
    say_site("real_block", TIMES * 321, TIMES);
    say("done");
    wait_for_line();
    return 0;
}
