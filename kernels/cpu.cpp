#include "kernels/variants.h"

namespace reprise::kernels::detail {

bool has(Isa isa) {
#if defined(__x86_64__)
    // __builtin_cpu_supports also asks the operating system whether it saves the registers. It reads a table that libgcc fills in a
    // constructor of the highest priority; __builtin_cpu_init makes it right even when we are called from an earlier one.
    __builtin_cpu_init();
    switch (isa) {
        case Isa::base:
            return true;
        case Isa::movsb:
            return !REPRISE_KERNELS_SANITIZED;
        case Isa::avx2:
            return __builtin_cpu_supports("avx2") != 0;
        case Isa::avx512:
            return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
    }
    return false;
#else
    return isa == Isa::base;
#endif
}

}  // namespace reprise::kernels::detail
