// How the allocator starts, or does not: limits, the environment, fault points. Every test body runs in a child that has not started it.
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>

#include "allocator/arena.h"
#include "tests/allocator/support.h"

namespace reprise::test {
namespace {

int fresh(int (*body)()) { return in_child(body, false); }

TEST(Start, BeforeItNothingIsPlacedAndNothingBreaks) {
    EXPECT_EQ(fresh([] {
                  bool zeroed = true;
                  if (place(1 << 20, 64, &zeroed) != nullptr || zeroed) return 1;
                  int local = 0;
                  if (in_arena(&local) || in_arena(nullptr) || release_block(&local) || block_size(nullptr) != 0) return 2;
                  BlockInfo block;
                  if (port().find(address_of(&local), &block)) return 3;
                  end_mapping({0, 100});
                  forget_heap(&local);
                  port().trim();
                  int visits = 0;
                  port().for_each([](void *c, const BlockInfo *) { return ++*static_cast<int *>(c) > 0; }, &visits);
                  if (visits != 0) return 4;
                  allocator_fork_prepare();
                  allocator_fork_parent();
                  return 0;
              }),
              0);
}

TEST(Start, OnceIsEnough) {
    EXPECT_EQ(fresh([] { return allocator_start() && allocator_start() && place(1 << 20, 64, nullptr) != nullptr ? 0 : 1; }), 0);
}

TEST(Start, SizeFromTheEnvironment) {
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_ARENA", "256MiB", 1);
                  if (!allocator_start() || arena.statistics().reserved != size_t{256} << 20) return 1;
                  // Full: the first to fill it, the next allocator gets the rest.
                  int placed = 0;
                  while (place(8 << 20, 64, nullptr) != nullptr) ++placed;
                  if (placed < 30 || placed > 32) return 2;
                  return arena.statistics().refused == 1 ? 0 : 3;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_ARENA", "0", 1);
                  if (allocator_start() || place(1 << 20, 64, nullptr) != nullptr) return 1;
                  note_heap("x", 1);  // still works without arenas
                  BlockInfo block;
                  return port().find(address_of("x"), &block) ? 0 : 2;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_ARENA", "lots", 1);  // not a size: as if unset
                  return allocator_start() ? 0 : 1;
              }),
              0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they need more address space than any limit leaves
TEST(Start, AddressSpaceLimitLeavesTheJobItsShare) {
    EXPECT_EQ(fresh([] {
                  rlimit limit{size_t{4} << 30, size_t{4} << 30};
                  setrlimit(RLIMIT_AS, &limit);
                  if (!allocator_start()) return 1;
                  if (arena.statistics().reserved > size_t{512} << 20) return 2;
                  void *mine = mmap(nullptr, size_t{3} << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                  if (mine == MAP_FAILED) return 3;
                  return place(1 << 20, 64, nullptr) != nullptr ? 0 : 4;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  rlimit limit{size_t{200} << 20, size_t{200} << 20};
                  setrlimit(RLIMIT_AS, &limit);
                  return allocator_start() ? 1 : 0;  // too little to share
              }),
              0);
}

TEST(Start, DataLimitOpensLess) {
    EXPECT_EQ(fresh([] {
                  if (!allocator_start()) return 1;
                  rlimit limit{size_t{48} << 20, size_t{48} << 20};  // less than one large step
                  setrlimit(RLIMIT_DATA, &limit);
                  char *p = static_cast<char *>(place(4 << 20, 64, nullptr));
                  if (p == nullptr) return 2;
                  std::memset(p, 1, 4 << 20);
                  return place(size_t{200} << 20, 64, nullptr) == nullptr ? 0 : 3;
              }),
              0);
}

TEST(Start, LockedMemoryIsOpenedInSmallSteps) {
    EXPECT_EQ(fresh([] {
                  if (!allocator_start()) return 1;
                  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 0;  // not allowed here: nothing can go wrong either
                  note_memory_locked(true);
                  const size_t before = resident_bytes();
                  void *p = place(3 << 20, 64, nullptr);
                  if (p == nullptr) return 2;
                  if (resident_bytes() - before > size_t{10} << 20) return 3;
                  release_block(p);
                  port().trim();  // cannot be dropped: must neither loop nor claim that it is zero
                  bool zeroed = true;
                  std::memset(place(3 << 20, 64, &zeroed), 1, 1);
                  return zeroed ? 4 : 0;
              }),
              0);
}
#endif

TEST(Start, FaultsDegradeToTheNextAllocator) {
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_FAULT", "arena_reserve", 1);
                  return !allocator_start() && place(1 << 20, 64, nullptr) == nullptr ? 0 : 1;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_FAULT", "arena_reserve:1", 1);  // the largest is refused, the next is not
                  return allocator_start() && place(1 << 20, 64, nullptr) != nullptr ? 0 : 1;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_FAULT", "arena_open", 1);
                  return allocator_start() && place(1 << 20, 64, nullptr) == nullptr ? 0 : 1;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_FAULT", "meta_open:2,lock_contended:2", 1);
                  if (!allocator_start()) return 1;
                  if (place(1 << 20, 64, nullptr) == nullptr) return 2;  // the large step failed, the small one did not
                  if (place(1 << 20, 64, nullptr) != nullptr) return 3;  // contended
                  return place(1 << 20, 64, nullptr) != nullptr ? 0 : 4;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_FAULT", "lock_contended:3", 1);
                  if (!allocator_start()) return 1;
                  void *a = place(1 << 20, 64, nullptr), *b = place(1 << 20, 64, nullptr);
                  if (!release_block(a) || release_block(a)) return 2;  // put aside, and gone all the same
                  if (arena.statistics().deferred != 1 || arena.statistics().live != size_t{2} << 20) return 3;
                  if (!release_block(b)) return 4;
                  return arena.statistics().live == 0 ? 0 : 5;
              }),
              0);
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_FAULT", "lock_contended:3", 1);
                  if (!allocator_start()) return 1;
                  void *a = port().borrow(1 << 20), *b = port().borrow(1 << 20);
                  port().give_back(a);  // put aside
                  if (arena.statistics().deferred != 1 || arena.give_back(address_of(a))) return 2;
                  port().give_back(b);
                  return arena.statistics().live == 0 ? 0 : 3;
              }),
              0);
}

// Where address space is short it is the job's.
TEST(Start, TheEngineBorrowsAQuarterAtMost) {
    EXPECT_EQ(fresh([] {
                  setenv("REPRISE_ARENA", "64MiB", 1);
                  if (!allocator_start()) return 1;
                  if (port().borrow(17 << 20) != nullptr) return 2;
                  void *borrowed[16];
                  for (void *&p : borrowed) {
                      p = port().borrow(1 << 20);
                      if (p == nullptr) return 3;
                  }
                  if (port().borrow(1 << 20) != nullptr) return 4;
                  port().give_back(borrowed[7]);
                  return port().borrow(1 << 20) != nullptr ? 0 : 5;
              }),
              0);
}

}  // namespace
}  // namespace reprise::test
