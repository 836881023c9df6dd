// XXH3 digests: the fixed public algorithm, so that a digest in a record means the same everywhere.
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/split.h"
#include "kernels/tuner.h"

namespace reprise::kernels {
namespace detail {

uint64_t digest_base(const void *data, size_t size);
Digest128 digest128_base(const void *data, size_t size, uint64_t seed);
#if defined(__x86_64__)
uint64_t digest_avx2(const void *data, size_t size);
Digest128 digest128_avx2(const void *data, size_t size, uint64_t seed);
uint64_t digest_avx512(const void *data, size_t size);
Digest128 digest128_avx512(const void *data, size_t size, uint64_t seed);
#endif

namespace {

constexpr Variant<DigestFunction> kDigest[] = {
    {"base", Isa::base, digest_base},
#if defined(__x86_64__)
    {"avx2", Isa::avx2, digest_avx2},
    {"avx512", Isa::avx512, digest_avx512},
#endif
};
constexpr Variant<Digest128Function> kDigest128[] = {
    {"base", Isa::base, digest128_base},
#if defined(__x86_64__)
    {"avx2", Isa::avx2, digest128_avx2},
    {"avx512", Isa::avx512, digest128_avx512},
#endif
};

}  // namespace

Variants<DigestFunction> digest_variants() { return {kDigest, sizeof kDigest / sizeof kDigest[0]}; }
Variants<Digest128Function> digest128_variants() { return {kDigest128, sizeof kDigest128 / sizeof kDigest128[0]}; }

}  // namespace detail

namespace {

using namespace detail;

constexpr size_t kPage = 4096;
constexpr size_t kDigestPiece = size_t{8} << 20;  // part of the definition of digest128: never change it
constexpr size_t kShortInput = 240;               // up to here XXH3 uses no vectors: spare the question for the CPU

// The widest is the fastest here (the digest is bound by its multiplications), so this is asked, not measured.
constinit std::atomic<int> g_widest{-1};
unsigned widest() {
    int known = g_widest.load(std::memory_order_relaxed);
    if (known < 0) {
        known = 31 - __builtin_clz(digest_variants().usable());
        g_widest.store(known, std::memory_order_relaxed);
    }
    return static_cast<unsigned>(known);
}
unsigned only_widest() { return 1u << widest(); }

constinit Tuners g_pages, g_pieces;  // decide between one thread and all

}  // namespace

uint64_t digest(const void *data, size_t size) { return kDigest[size <= kShortInput ? 0 : widest()].run(data, size); }

Digest128 digest128(const void *data_, size_t size) {
    const Digest128Function run = kDigest128[size <= kShortInput ? 0 : widest()].run;
    if (size <= kDigestPiece) return run(data_, size, 0);
    // The digests of the pieces, chained: each group of pieces and what came before it is digested, seeded with the size, so that this
    // differs from the digest of a short input that happens to hold those bytes. Groups bound the memory that is needed.
    constexpr size_t kGroup = 64;
    Digest128 chain[1 + kGroup] = {};
    auto *data = static_cast<const char *>(data_);
    Tuner &tuner = g_pieces.get(kHugeClass);
    for (size_t done = 0; done < size;) {
        const size_t batch = size - done < kGroup * kDigestPiece ? size - done : kGroup * kDigestPiece;
        const size_t pieces = (batch + kDigestPiece - 1) / kDigestPiece;
        Trial trial(Kind::digest, tuner, only_widest, batch);
        auto piece = [&](size_t i) {
            size_t offset = i * kDigestPiece;
            chain[1 + i] = run(data + done + offset, batch - offset < kDigestPiece ? batch - offset : kDigestPiece, 0);
        };
        if (trial.choice().parallel) {
            run_parallel(
                pieces, [](void *context, size_t i) { (*static_cast<decltype(piece) *>(context))(i); }, &piece);
        } else {
            for (size_t i = 0; i < pieces; i++) piece(i);
        }
        chain[0] = run(chain, (1 + pieces) * sizeof chain[0], size);
        done += batch;
    }
    return chain[0];
}

void digest_pages(const void *data_, size_t pages, uint64_t *out) {
    auto *data = static_cast<const char *>(data_);
    const DigestFunction run = kDigest[widest()].run;
    auto span = [=](size_t offset, size_t n) {
        for (size_t page = offset / kPage; page < (offset + n) / kPage; page++) out[page] = run(data + page * kPage, kPage);
    };
    if (pages * kPage < kMedium) return span(0, pages * kPage);
    Tuner &tuner = g_pages.get(class_of(pages * kPage));
    for (size_t done = 0; done < pages * kPage;) {
        const size_t batch = batch_size(Kind::digest, tuner, pages * kPage - done);
        Trial trial(Kind::digest, tuner, only_widest, batch);
        for_pieces(0, batch, trial.choice().parallel, [=](size_t offset, size_t n) { span(done + offset, n); });
        done += batch;
    }
}

}  // namespace reprise::kernels
