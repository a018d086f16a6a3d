// The C++ part of random_calls: every form of operator new and operator delete.
#include "random_calls.h"

#include <new>

static volatile size_t impossible = (size_t)-1 / 4;
static const std::align_val_t alignment{128};

extern "C" SITE void site_new(block *block, size_t size)
{
    void *memory = operator new(size);
    AFTER_CALL();
    block_lives(block, "site_new", memory, size, FROM_NEW);
}

extern "C" SITE void site_new_array(block *block, size_t size)
{
    void *memory = operator new[](size);
    AFTER_CALL();
    block_lives(block, "site_new_array", memory, size, FROM_NEW_ARRAY);
}

extern "C" SITE void site_new_nothrow(block *block, size_t size)
{
    void *memory = operator new(size, std::nothrow);
    AFTER_CALL();
    block_lives(block, "site_new_nothrow", memory, size, FROM_NEW);
}

extern "C" SITE void site_new_aligned(block *block, size_t size)
{
    // libstdc++ rounds such sizes up.
    size = (size + 127) / 128 * 128;
    void *memory = operator new(size, alignment);
    AFTER_CALL();
    block_lives(block, "site_new_aligned", memory, size, FROM_ALIGNED_NEW);
}

extern "C" SITE void site_new_array_aligned_nothrow(block *block, size_t size)
{
    size = (size + 127) / 128 * 128;
    void *memory = operator new[](size, alignment, std::nothrow);
    AFTER_CALL();
    block_lives(block, "site_new_array_aligned_nothrow", memory, size, FROM_ALIGNED_NEW_ARRAY);
}

// A request that cannot be granted: the exception must arrive.
extern "C" SITE void site_new_impossible()
{
    try {
        if (operator new(impossible) != nullptr)
            abort();
    } catch (const std::bad_alloc &) {
        return;
    }
    abort();
}

void new_block(block *block, unsigned choice, size_t size)
{
    switch (choice % NEW_CHOICES) {
    case 0: site_new(block, size); break;
    case 1: site_new_array(block, size); break;
    case 2: site_new_nothrow(block, size); break;
    case 3: site_new_aligned(block, size); break;
    case 4: site_new_array_aligned_nothrow(block, size); break;
    // mimalloc built as C ends the program instead of throwing.
    default: own_calls_abort() ? site_new(block, size) : site_new_impossible(); break;
    }
}

void delete_block(const block *block)
{
    size_t how = block->size % 3;
    switch (block->family) {
    case FROM_NEW:
        if (how == 0) operator delete(block->memory);
        else if (how == 1) operator delete(block->memory, block->size);
        else operator delete(block->memory, std::nothrow);
        break;
    case FROM_NEW_ARRAY:
        if (how == 0) operator delete[](block->memory);
        else if (how == 1) operator delete[](block->memory, block->size);
        else operator delete[](block->memory, std::nothrow);
        break;
    case FROM_ALIGNED_NEW:
        if (how == 0) operator delete(block->memory, alignment);
        else if (how == 1) operator delete(block->memory, block->size, alignment);
        else operator delete(block->memory, alignment, std::nothrow);
        break;
    case FROM_ALIGNED_NEW_ARRAY:
        if (how == 0) operator delete[](block->memory, alignment);
        else if (how == 1) operator delete[](block->memory, block->size, alignment);
        else operator delete[](block->memory, alignment, std::nothrow);
        break;
    default:
        abort();
    }
}
