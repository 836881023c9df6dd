#include "support.h"

namespace reprise::kernels::testing {
namespace {

using detail::Kind;

std::vector<unsigned char> counted(size_t size) {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size; i++) bytes[i] = static_cast<unsigned char>((i * 2654435761u & 0xffffffffu) >> 13);
    return bytes;
}

// From the reference library, called from another language; the last by its definition in digest.cpp. A digest in a record must mean the
// same on every machine, for ever.
TEST(Digest, KnownValues) {
    EXPECT_EQ(digest(nullptr, 0), 0x2d06800538d394c2u);
    EXPECT_EQ(digest("abc", 3), 0x78af5f94892f3950u);
    EXPECT_EQ(digest128("abc", 3), (Digest128{0x78af5f94892f3950u, 0x06b05ab6733a6185u}));
    EXPECT_EQ(digest128(nullptr, 0), (Digest128{0x6001c324468d497fu, 0x99aa06d3014798d8u}));
    auto big = counted(300000);
    EXPECT_EQ(digest(big.data(), big.size()), 0xae771702cc2e882fu);
    EXPECT_EQ(digest128(big.data(), big.size()), (Digest128{0xae771702cc2e882fu, 0x48029c5ca2eb3748u}));
    auto huge = counted((size_t{20} << 20) + 17);
    EXPECT_EQ(digest128(huge.data(), huge.size()), (Digest128{0x71009771ad3129aau, 0xe41761e7911e6d49u}));
}

TEST(DigestVariants, SameValue) {
    Random random(31);
    auto variants = detail::digest_variants();
    auto variants128 = detail::digest128_variants();
    for (int round = 0; round < 1500; round++) {
        size_t size = round < 600 ? static_cast<size_t>(round) : random.below(20000);
        Buffer data(size, random.below(64));
        random.fill(data.data(), size);
        uint64_t expected = variants.entries[0].run(data.data(), size);
        uint64_t chosen_seed = round % 2 ? 0 : random.word();
        Digest128 expected128 = variants128.entries[0].run(data.data(), size, chosen_seed);
        for (unsigned v = 0; v < variants.count; v++) {
            if (!detail::has(variants.entries[v].needs)) continue;
            ASSERT_EQ(variants.entries[v].run(data.data(), size), expected) << variants.entries[v].name << ", size " << size;
            ASSERT_EQ(variants128.entries[v].run(data.data(), size, chosen_seed), expected128)
                << variants.entries[v].name << ", size " << size;
        }
        ASSERT_EQ(digest(data.data(), size), expected) << size;
    }
}

TEST(Digest128, WorkersDoNotChangeIt) {
    Random random(32);
    constexpr size_t piece = size_t{8} << 20;
    for (size_t size :
         {piece - 1, piece, piece + 1, 2 * piece, test::by_build(5u, 5u, 3u) * piece + 4097, test::by_build(65u, 65u, 5u) * piece + 1}) {
        Buffer data(size, random.below(64));
        random.fill(data.data(), size);
        Digest128 serial = digest128(data.data(), size);
        for (bool parallel : {false, true}) {
            Forced forced(Kind::digest, 0, parallel);
            ASSERT_EQ(digest128(data.data(), size), serial) << size;
        }
        data.data()[random.below(size)] ^= 1;
        ASSERT_NE(digest128(data.data(), size), serial) << size;
    }
}

// A long input must not have the digest of the short one that its pieces' digests make.
TEST(Digest128, PiecesAreNotConfusedWithTheirDigests) {
    auto data = counted(size_t{16} << 20);
    Digest128 parts[3] = {{}, digest128(data.data(), size_t{8} << 20), digest128(data.data() + (size_t{8} << 20), size_t{8} << 20)};
    EXPECT_NE(digest128(data.data(), data.size()), digest128(parts, sizeof parts));
    EXPECT_NE(digest128(data.data(), data.size()), digest128(parts + 1, 2 * sizeof parts[0]));
}

TEST(DigestPages, SameAsOneByOne) {
    Random random(33);
    for (bool parallel : {false, true}) {
        Forced forced(Kind::digest, 0, parallel);
        for (size_t pages : {0, 1, 5, 64, 1023, 1025, 2000}) {
            Buffer data(pages * 4096, random.below(64));
            random.fill(data.data(), data.size());
            std::vector<uint64_t> out(pages + 1, 77);
            digest_pages(data.data(), pages, out.data());
            for (size_t page = 0; page < pages; page++) ASSERT_EQ(out[page], digest(data.data() + page * 4096, 4096)) << page;
            ASSERT_EQ(out[pages], 77u);
        }
    }
}

}  // namespace
}  // namespace reprise::kernels::testing
