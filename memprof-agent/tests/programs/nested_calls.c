// outer calls middle calls inner calls malloc; says at which file offsets they start, so that another
// tracer can put return probes on them.
#include "target.h"

#include <link.h>
#include <stdint.h>

enum { TIMES = 300, SIZE = 88 };

static void *volatile last;

SITE void *inner(void)
{
    void *block = malloc(SIZE);
    AFTER_CALL();
    return block;
}

SITE void *middle(void)
{
    void *block = inner();
    AFTER_CALL();
    return block;
}

SITE void *outer(void)
{
    void *block = middle();
    AFTER_CALL();
    return block;
}

// The file offset of an address in this program: the first object of the list.
static int offset_in_file(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    uintptr_t *address = argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && *address >= start && *address - start < segment->p_filesz) {
            *address = *address - start + segment->p_offset;
            return 1;
        }
    }
    return -1;
}

static void say_offset(const char *name, void *(*function)(void))
{
    uintptr_t address = (uintptr_t)function;
    if (dl_iterate_phdr(offset_in_file, &address) != 1)
        abort();
    say("value %s %zu", name, (size_t)address);
}

int main(void)
{
    say_offset("outer", outer);
    say_offset("middle", middle);
    say_offset("inner", inner);
    say("ready");
    wait_for_line();
    for (int i = 0; i < TIMES; i++)
        last = outer();
    say_site("inner", TIMES * SIZE, TIMES);
    say("done");
    wait_for_line();
    return 0;
}
