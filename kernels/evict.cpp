#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace reprise::kernels {

void evict([[maybe_unused]] const void *data, [[maybe_unused]] size_t size) {
#if defined(__x86_64__)
    constexpr size_t kLine = 64;
    const char *const bytes = static_cast<const char *>(data);
    for (size_t offset = 0; offset < size; offset += kLine) _mm_clflush(bytes + offset);
    if (size != 0) _mm_clflush(bytes + size - 1);  // data need not begin with a line
    _mm_mfence();
#endif
}

}  // namespace reprise::kernels
