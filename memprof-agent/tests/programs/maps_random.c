// Threads change memory maps at random and keep a log of it: for every page which call mapped it, and whether it
// is usable. Usage: maps_random SEED SEQUENCES
#include "target.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 64, OPERATIONS = 40, THREADS = 4, SITES = 4, GROW = SITES };
enum { USABLE = PROT_READ | PROT_WRITE };

#define MAPS(name)                                                                              \
    SITE void name(char *place, size_t length, int protection)                                 \
    {                                                                                           \
        void *at = mmap(place, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); \
        AFTER_CALL();                                                                           \
        if (at != place)                                                                        \
            _exit(5);                                                                           \
    }

MAPS(random_map_0)
MAPS(random_map_1)
MAPS(random_map_2)
MAPS(random_map_3)

SITE void random_remap(char *from, size_t old, char *to, size_t length)
{
    void *at = mremap(from, old, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    AFTER_CALL();
    if (at != to)
        _exit(6);
}

static void (*const maps[SITES])(char *, size_t, int) = {
    random_map_0, random_map_1, random_map_2, random_map_3,
};

// Pages and calls in use by site, of all sequences.
static atomic_size_t pages_in_use[SITES + 1], calls_in_use[SITES + 1];
static size_t seed, sequences;

// What a sequence knows of its area: the call that mapped a page (0 = none), whether it is usable, and which
// operation changed it last. Pages with the same last operation are of one kernel mapping, as mremap wants it.
struct area {
    char *start;
    uint64_t state;
    int call[PAGES], usable[PAGES], changed[PAGES];
    int site_of_call[OPERATIONS + 1];
};

static size_t choose(struct area *area, size_t below)
{
    area->state = area->state * 6364136223846793005u + 1442695040888963407u;
    return (area->state >> 33) % below;
}

static void set(struct area *area, int operation, size_t from, size_t to, int call, int usable)
{
    for (size_t page = from; page < to; page++) {
        area->call[page] = call;
        area->usable[page] = usable;
        area->changed[page] = operation;
    }
}

// How many pages from `page` on, at most `most`, of one call, were changed together.
static size_t run_length(const struct area *area, size_t page, size_t most)
{
    size_t length = 0;
    while (length < most && page + length < PAGES && area->changed[page + length] == area->changed[page]
           && area->call[page + length] == area->call[page])
        length++;
    return area->call[page] ? length : 0;
}

// Moves a run of pages to another place in the area, perhaps with more pages than it had.
static void move_run(struct area *area, int operation)
{
    size_t from = choose(area, PAGES), to = choose(area, PAGES);
    size_t length = run_length(area, from, 1 + choose(area, 8));
    size_t total = length + (choose(area, 2) ? choose(area, 4) : 0);
    if (!length || to + total > PAGES || (to < from + length && from < to + total))
        return;
    int call = area->call[from], usable = area->usable[from];
    random_remap(area->start + from * PAGE, length * PAGE, area->start + to * PAGE, total * PAGE);
    set(area, operation, from, from + length, 0, 0);
    set(area, operation, to, to + length, call, usable);
    set(area, operation, to + length, to + total, operation, usable);
    area->site_of_call[operation] = GROW;
}

static void change(struct area *area, int operation)
{
    size_t from = choose(area, PAGES), length = 1 + choose(area, 12);
    size_t to = from + length > PAGES ? PAGES : from + length;
    char *start = area->start + from * PAGE;
    int usable = choose(area, 3) != 0;
    switch (choose(area, 8)) {
    case 0: case 1: case 2: {
        size_t site = choose(area, SITES);
        maps[site](start, (to - from) * PAGE, usable ? USABLE : PROT_NONE);
        set(area, operation, from, to, operation, usable);
        area->site_of_call[operation] = (int)site;
        return;
    }
    case 3:
        if (munmap(start, (to - from) * PAGE - choose(area, PAGE)))
            _exit(7);
        set(area, operation, from, to, 0, 0);
        return;
    case 4:
        if (munmap(start + 1, PAGE) != -1)
            _exit(7);
        return;
    case 5: {
        size_t alike = run_length(area, from, length);
        if (alike && mprotect(start, alike * PAGE, usable ? PROT_READ : PROT_NONE))
            _exit(8);
        set(area, operation, from, from + alike, area->call[from], usable);
        return;
    }
    case 6: {
        size_t alike = run_length(area, from, length);
        size_t left = alike ? 1 + choose(area, alike) : 0;
        if (alike && mremap(start, alike * PAGE, left * PAGE, 0) != start)
            _exit(9);
        set(area, operation, from + left, from + alike, 0, 0);
        return;
    }
    default:
        move_run(area, operation);
    }
}

static void add_up(const struct area *area)
{
    int seen[OPERATIONS + 1] = { 0 };
    for (size_t page = 0; page < PAGES; page++) {
        int call = area->call[page];
        if (!call || !area->usable[page])
            continue;
        atomic_fetch_add(&pages_in_use[area->site_of_call[call]], 1);
        if (!seen[call]++)
            atomic_fetch_add(&calls_in_use[area->site_of_call[call]], 1);
    }
}

SITE void *random_worker(void *argument)
{
    for (size_t sequence = (size_t)argument; sequence < sequences; sequence += THREADS) {
        struct area area = { .state = seed * 1000003 + sequence };
        // With a page on either side, no hole in the area is large enough for another thread's area.
        char *whole = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (whole == MAP_FAILED)
            _exit(10);
        area.start = whole + PAGE;
        for (int operation = 1; operation <= OPERATIONS; operation++)
            change(&area, operation);
        if (sequence % 4 == 0)
            add_up(&area);
        else if (munmap(whole, (PAGES + 2) * PAGE))
            _exit(11);
        usleep(2000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    seed = number(argv[1]);
    sequences = number(argv[2]);
    pthread_t threads[THREADS];
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, random_worker, (void *)i))
            _exit(12);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SITES; i++) {
        char name[] = "random_map_0";
        name[sizeof name - 2] += (char)i;
        say_site(name, pages_in_use[i] * PAGE, calls_in_use[i]);
    }
    say_site("random_remap", pages_in_use[GROW] * PAGE, calls_in_use[GROW]);
    say("done");
    wait_for_line();
    return 0;
}
