#include "interpose/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include <atomic>

// As in <dlfcn.h> of glibc 2.35; declared here so that we build against, and load on, older ones.
extern "C" {
struct reprise_dl_find_object {
    unsigned long long flags;
    void *map_start;
    void *map_end;
    struct link_map *map;
    void *eh_frame;
    unsigned long long reserved[7];
};
}

namespace reprise {
namespace {

using FindObject = int (*)(void *, reprise_dl_find_object *);
constinit std::atomic<FindObject> g_find_object{nullptr};
constinit std::atomic<bool> g_find_object_known{false};

FindObject find_object() {
    if (!g_find_object_known.load(std::memory_order_acquire)) {
        g_find_object.store(reinterpret_cast<FindObject>(dlsym(RTLD_DEFAULT, "_dl_find_object")), std::memory_order_relaxed);
        g_find_object_known.store(true, std::memory_order_release);
    }
    return g_find_object.load(std::memory_order_relaxed);
}

uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

// ---- before glibc 2.35 -------------------------------------------------------------------------------------------------------------

constexpr size_t kRemembered = 1024;
struct Remembered {
    std::atomic<uintptr_t> begin{0};  // stored last: a record whose begin is set is complete and never changes
    uintptr_t end = 0;
    uintptr_t base = 0;
    const void *dynamic = nullptr;
    const char *name = nullptr;  // no pointer to data by default: that would be a relocation each, at every start
};
constinit Remembered g_remembered[kRemembered] = {};
constinit std::atomic<size_t> g_remembered_count{0};

struct Search {
    uintptr_t address;
    Module *out;
};

int visit(dl_phdr_info *info, size_t, void *context) {
    auto *search = static_cast<Search *>(context);
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;
    const void *dynamic = nullptr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &header = info->dlpi_phdr[i];
        const uintptr_t at = info->dlpi_addr + header.p_vaddr;
        if (header.p_type == PT_LOAD) {
            if (at < begin) begin = at & ~uintptr_t{4095};
            if (at + header.p_memsz > end) end = at + header.p_memsz;
        } else if (header.p_type == PT_DYNAMIC) {
            dynamic = reinterpret_cast<const void *>(at);
        }
    }
    if (search->address < begin || search->address >= end) return 0;
    *search->out = Module{begin, end, info->dlpi_name, dynamic, info->dlpi_addr, 0};
    return 1;
}

bool find_by_iteration(uintptr_t address, Module *out) {
    const size_t count = g_remembered_count.load(std::memory_order_acquire);
    for (size_t i = 0; i < count && i < kRemembered; ++i) {
        const Remembered &known = g_remembered[i];
        const uintptr_t begin = known.begin.load(std::memory_order_acquire);
        if (begin == 0 || address < begin || address >= known.end) continue;
        *out = Module{begin, known.end, known.name, known.dynamic, known.base, 0};
        out->identity = mix(mix(1, begin), known.end);
        return true;
    }
    Search search{address, out};
    if (dl_iterate_phdr(visit, &search) == 0) return false;
    const size_t slot = g_remembered_count.fetch_add(1, std::memory_order_acq_rel);
    if (slot < kRemembered) {
        Remembered &record = g_remembered[slot];
        record.end = out->end;
        record.base = out->base;
        record.dynamic = out->dynamic;
        record.name = out->name;
        record.begin.store(out->begin, std::memory_order_release);
    }
    out->identity = mix(mix(1, out->begin), out->end);
    return true;
}

// ---- the dynamic section -----------------------------------------------------------------------------------------------------------

struct Dynamic {
    const ElfW(Sym) *symbols = nullptr;
    const char *strings = nullptr;
    size_t symbol_count = 0;  // of those that can be undefined
};

// The loader relocates these pointers in most modules, not in read-only dynamic sections (the vDSO).
uintptr_t relocated(uintptr_t pointer, uintptr_t base) { return pointer < base ? pointer + base : pointer; }

bool read_dynamic(const void *dynamic, uintptr_t base, Dynamic *out) {
    const uint32_t *gnu_hash = nullptr;
    const uint32_t *sysv_hash = nullptr;
    for (auto *entry = static_cast<const ElfW(Dyn) *>(dynamic); entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
        const uintptr_t at = relocated(entry->d_un.d_ptr, base);
        if (entry->d_tag == DT_SYMTAB) out->symbols = reinterpret_cast<const ElfW(Sym) *>(at);
        if (entry->d_tag == DT_STRTAB) out->strings = reinterpret_cast<const char *>(at);
        if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t *>(at);
        if (entry->d_tag == DT_HASH) sysv_hash = reinterpret_cast<const uint32_t *>(at);
    }
    // A GNU hash table covers the defined symbols, which stand behind all others; the second word says where they begin.
    if (sysv_hash != nullptr) {
        out->symbol_count = sysv_hash[1];
    } else if (gnu_hash != nullptr) {
        out->symbol_count = gnu_hash[1];
    }
    return out->symbols != nullptr && out->strings != nullptr && out->symbol_count != 0;
}

bool imports(const void *dynamic, uintptr_t base, const char *symbol) {
    Dynamic tables;
    if (dynamic == nullptr || !read_dynamic(dynamic, base, &tables)) return false;
    for (size_t i = 1; i < tables.symbol_count; ++i) {
        const ElfW(Sym) &entry = tables.symbols[i];
        if (entry.st_shndx == SHN_UNDEF && strcmp(tables.strings + entry.st_name, symbol) == 0) return true;
    }
    return false;
}

}  // namespace

bool find_module(const void *address, Module *out) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    FindObject find = find_object();
    if (find == nullptr) return find_by_iteration(at, out);
    reprise_dl_find_object found;
    if (find(const_cast<void *>(address), &found) != 0) return false;
    out->begin = reinterpret_cast<uintptr_t>(found.map_start);
    out->end = reinterpret_cast<uintptr_t>(found.map_end);
    out->name = found.map->l_name != nullptr ? found.map->l_name : "";
    out->dynamic = found.map->l_ld;
    out->base = found.map->l_addr;
    // A module that was closed and another opened in its place agree in all four only if they are the same file, for all that is likely.
    out->identity =
        mix(mix(mix(reinterpret_cast<uintptr_t>(found.map), out->begin), out->end), reinterpret_cast<uintptr_t>(found.eh_frame));
    return true;
}

bool module_code_contains(const Module &module, uintptr_t address) {
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(module.begin);
    if (module.end - module.begin < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
    const auto *programs = reinterpret_cast<const ElfW(Phdr) *>(module.begin + header->e_phoff);
    if (header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > 4096) return false;  // not in the first page: not sure to be mapped
    for (int i = 0; i < header->e_phnum; ++i) {
        const ElfW(Phdr) &program = programs[i];
        if (program.p_type != PT_LOAD || (program.p_flags & PF_X) == 0) continue;
        const uintptr_t begin = module.base + program.p_vaddr;
        if (address >= begin + 8 && address < begin + program.p_memsz) return true;
    }
    return false;
}

bool module_imports(const Module &module, const char *symbol) { return imports(module.dynamic, module.base, symbol); }

bool executable_imports(const char *symbol) {
    const auto *programs = reinterpret_cast<const ElfW(Phdr) *>(getauxval(AT_PHDR));
    const size_t count = getauxval(AT_PHNUM);
    if (programs == nullptr) return false;
    uintptr_t base = 0;
    for (size_t i = 0; i < count; ++i)
        if (programs[i].p_type == PT_PHDR) base = reinterpret_cast<uintptr_t>(programs) - programs[i].p_vaddr;
    for (size_t i = 0; i < count; ++i) {
        if (programs[i].p_type != PT_DYNAMIC) continue;
        return imports(reinterpret_cast<const void *>(base + programs[i].p_vaddr), base, symbol);
    }
    return false;
}

}  // namespace reprise
