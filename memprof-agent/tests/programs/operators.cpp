// C++ on an allocator of its own: operators, sized deletes, exceptions, and jemalloc's own calls when
// they are there. Usage: operators [ADDRESS_SPACE_LIMIT]
#include "target.h"

#include <dlfcn.h>
#include <new>
#include <sys/resource.h>

enum { TIMES = 1000 };

static void *volatile last;
static volatile size_t impossible = (size_t)-1 / 4;

SITE void *site_new(size_t size)
{
    void *block = operator new(size);
    AFTER_CALL();
    return block;
}

SITE void *site_new_array(size_t size)
{
    void *block = operator new[](size);
    AFTER_CALL();
    return block;
}

SITE void *site_deleted(size_t size)
{
    void *block = operator new(size);
    AFTER_CALL();
    return block;
}

SITE void *site_mallocx(void *(*mallocx)(size_t, int), size_t size)
{
    void *block = mallocx(size, 0);
    AFTER_CALL();
    return block;
}

SITE bool throws()
{
    try {
        last = operator new(impossible);
        return false;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

// Asks for more and more until the limit on the address space is met, and gives it back.
SITE bool runs_into_limit()
{
    static void *blocks[100000];
    size_t count = 0;
    bool thrown = false;
    try {
        while (count < 100000) {
            blocks[count] = operator new(50000);
            count++;
        }
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    while (count > 0)
        operator delete(blocks[--count], (size_t)50000);
    return thrown;
}

int main(int argc, char **argv)
{
    auto mallocx = (void *(*)(size_t, int))dlsym(RTLD_DEFAULT, "mallocx");
    auto sdallocx = (void (*)(void *, size_t, int))dlsym(RTLD_DEFAULT, "sdallocx");
    if (argc > 1) {
        rlimit limit{number(argv[1]), number(argv[1])};
        if (setrlimit(RLIMIT_AS, &limit))
            return 2;
    }
    say("ready");
    wait_for_line();
    size_t thrown = 0;
    for (size_t i = 0; i < TIMES; i++) {
        last = site_new(100);
        last = site_new_array(200);
        operator delete(site_deleted(300), (size_t)300);
        if (mallocx) {
            last = site_mallocx(mallocx, 400);
            sdallocx(site_mallocx(mallocx, 500), 500, 0);
        }
        if (i % 10 == 0)
            thrown += throws();
        pace(i * 4);
    }
    if (argc > 1)
        thrown += runs_into_limit();
    say_site("site_new", TIMES * 100, TIMES);
    say_site("site_new_array", TIMES * 200, TIMES);
    say_site("site_deleted", 0, 0);
    say_site("site_mallocx", mallocx ? TIMES * 400 : 0, mallocx ? TIMES : 0);
    say("value thrown %zu", thrown);
    say("done");
    wait_for_line();
    return 0;
}
