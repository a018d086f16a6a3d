// Every way to change memory maps, each at sites of its own, with the bytes that must be left of each.
#include "target.h"

#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096, USABLE = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };

// Maps at a place of the kernel's choice, by a function that the test finds by name.
#define MAPS(name)                                                         \
    SITE char *name(size_t length, int protection)                         \
    {                                                                      \
        char *start = mmap(NULL, length, protection, PRIVATE, -1, 0);      \
        AFTER_CALL();                                                      \
        if (start == MAP_FAILED)                                           \
            _exit(5);                                                      \
        return start;                                                      \
    }

// The same at a given place, whatever is there.
#define MAPS_AT(name)                                                                  \
    SITE char *name(char *place, size_t length, int protection)                        \
    {                                                                                  \
        char *start = mmap(place, length, protection, PRIVATE | MAP_FIXED, -1, 0);     \
        AFTER_CALL();                                                                  \
        if (start != place)                                                            \
            _exit(5);                                                                  \
        return start;                                                                  \
    }

#define MUST(call)    \
    if ((call) != 0)  \
    _exit(6)

MAPS(map_middle_gone)
MAPS_AT(map_first_of_three)
MAPS_AT(map_second_of_three)
MAPS_AT(map_third_of_three)
MAPS(map_failures)
MAPS(map_under_fixed)
MAPS_AT(map_fixed)
MAPS(map_to_grow)
MAPS(map_to_shrink)
MAPS(map_to_move)
MAPS(map_reserved)
MAPS_AT(map_committed)
MAPS(map_all_gone)
MAPS(map_odd_length)

SITE void middle_gone(void)
{
    char *start = map_middle_gone(10 * PAGE, USABLE);
    MUST(munmap(start + 3 * PAGE, 4 * PAGE));
    say_site("map_middle_gone", 6 * PAGE, 1);
}

// One munmap over the end of one block, all of the next and the start of a third.
SITE void over_several(void)
{
    char *area = mmap(NULL, 30 * PAGE, PROT_NONE, PRIVATE, -1, 0);
    MUST(munmap(area, 30 * PAGE));
    char *first = map_first_of_three(area, 10 * PAGE, USABLE);
    map_second_of_three(area + 10 * PAGE, 10 * PAGE, USABLE);
    map_third_of_three(area + 20 * PAGE, 10 * PAGE, USABLE);
    MUST(munmap(first + 9 * PAGE, 14 * PAGE));
    say_site("map_first_of_three", 9 * PAGE, 1);
    say_site("map_second_of_three", 0, 0);
    say_site("map_third_of_three", 7 * PAGE, 1);
}

SITE void failures(void)
{
    char *start = map_failures(4 * PAGE, USABLE);
    if (munmap(start + 1, PAGE) != -1 || munmap(start, 0) != -1)
        _exit(8);
    if (mmap(start, 0, USABLE, PRIVATE, -1, 0) != MAP_FAILED)
        _exit(8);
    if (mmap(start, PAGE, USABLE, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED)
        _exit(8);
    if (mmap(NULL, (size_t)1 << 60, USABLE, PRIVATE, -1, 0) != MAP_FAILED)
        _exit(8);
    if (mremap(start, 4 * PAGE, (size_t)1 << 60, MREMAP_MAYMOVE) != MAP_FAILED)
        _exit(8);
    if (mremap(start, 4 * PAGE, 8 * PAGE, MREMAP_FIXED) != MAP_FAILED)
        _exit(8);
    say_site("map_failures", 4 * PAGE, 1);
}

SITE void fixed(void)
{
    char *start = map_under_fixed(10 * PAGE, USABLE);
    map_fixed(start + 2 * PAGE, 3 * PAGE, USABLE);
    map_fixed(start + 8 * PAGE, 2 * PAGE, USABLE);
    say_site("map_under_fixed", 5 * PAGE, 1);
    say_site("map_fixed", 5 * PAGE, 2);
}

SITE char *remap_grow(char *start, size_t from, size_t to)
{
    char *grown = mremap(start, from, to, MREMAP_MAYMOVE);
    AFTER_CALL();
    if (grown == MAP_FAILED)
        _exit(9);
    return grown;
}

SITE char *remap_shrink(char *start, size_t from, size_t to)
{
    char *shrunk = mremap(start, from, to, 0);
    AFTER_CALL();
    if (shrunk != start)
        _exit(9);
    return shrunk;
}

SITE char *remap_move(char *start, size_t length, char *to)
{
    char *moved = mremap(start, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    AFTER_CALL();
    if (moved != to)
        _exit(9);
    return moved;
}

// What was mapped keeps its site; what mremap adds is the site of mremap.
SITE void remaps(void)
{
    char *grown = remap_grow(map_to_grow(4 * PAGE, USABLE), 4 * PAGE, 700 * PAGE);
    MUST(munmap(grown + 2 * PAGE, 10 * PAGE));
    say_site("map_to_grow", 2 * PAGE, 1);
    say_site("remap_grow", 688 * PAGE, 1);
    remap_shrink(map_to_shrink(9 * PAGE, USABLE), 9 * PAGE, 3 * PAGE);
    say_site("map_to_shrink", 3 * PAGE, 1);
    say_site("remap_shrink", 0, 0);
    char *from = map_to_move(8 * PAGE, USABLE);
    char *to = map_all_gone(8 * PAGE, USABLE);
    to = remap_move(from, 8 * PAGE, to);
    MUST(munmap(to, 3 * PAGE));
    say_site("map_to_move", 5 * PAGE, 1);
    say_site("map_all_gone", 0, 0);
    say_site("remap_move", 0, 0);
}

// Memory without access is in use only when it gets some.
SITE void reserved(void)
{
    char *start = map_reserved(100 * PAGE, PROT_NONE);
    MUST(mprotect(start + 10 * PAGE, 20 * PAGE, USABLE));
    MUST(mprotect(start + 15 * PAGE, 5 * PAGE, PROT_NONE));
    MUST(mprotect(start + 15 * PAGE, 2 * PAGE, PROT_READ));
    map_committed(start + 50 * PAGE, 7 * PAGE, USABLE);
    map_committed(start + 60 * PAGE, 9 * PAGE, PROT_NONE);
    say_site("map_reserved", 17 * PAGE, 1);
    say_site("map_committed", 7 * PAGE, 1);
}

SITE void odd_length(void)
{
    char *start = map_odd_length(3 * PAGE - 100, USABLE);
    MUST(munmap(start, 1));
    say_site("map_odd_length", 2 * PAGE, 1);
}

// The program break, by the C library and by the bare system call.
SITE void *break_up(intptr_t by)
{
    void *before = sbrk(by);
    AFTER_CALL();
    if (before == (void *)-1)
        _exit(10);
    return before;
}

SITE void breaks(void)
{
    uintptr_t start = ((uintptr_t)sbrk(0) + PAGE - 1) / PAGE * PAGE;
    MUST(brk((void *)start));
    break_up(20 * PAGE);
    break_up(100); // into a page of its own
    break_up(PAGE - 100);
    MUST(brk((void *)(start + 8 * PAGE + 1)));
    if (brk((void *)((uintptr_t)1 << 60)) != -1)
        _exit(10);
    say_site("break_up", 9 * PAGE, 1);
}

int main(void)
{
    say("ready");
    wait_for_line();
    middle_gone();
    over_several();
    failures();
    fixed();
    remaps();
    reserved();
    odd_length();
    breaks();
    say("done");
    wait_for_line();
    return 0;
}
