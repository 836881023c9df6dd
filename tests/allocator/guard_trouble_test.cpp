// The page guard when the job, or the machine, gets in its way: never silently clean.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstddef>

#include "allocator/base/fault.h"
#include "tests/allocator/guard_support.h"

namespace reprise::test {
namespace {

class GuardTrouble : public Guard {
  protected:
    // Lost tracking is reported once, then the guard works again.
    void expect_lost_then_recovered(AddressRange r) {
        GuardResult result;
        collect(r, true, 8, &result);
        EXPECT_EQ(result, GuardResult::kAllDirty);
        expect_working(r);
    }
    void expect_working(AddressRange r) {
        ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
        EXPECT_EQ(collect(r, true, 8), Pages{});
        write(r, 4);
        EXPECT_EQ(collect(r, true, 8), Pages{4});
    }
};

TEST_F(GuardTrouble, DescriptorsAreOutOfTheWay) {
    const PageGuardFiles files = page_guard_files();
    const AddressRange r = block(32);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    const PageGuardFiles open = page_guard_files();
    EXPECT_GE(open.pagemap, 200);
    EXPECT_GE(open.userfaultfd, 200);
    EXPECT_NE(fcntl(open.pagemap, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(open.userfaultfd, F_GETFD) & FD_CLOEXEC, 0);
    (void)files;
}

TEST_F(GuardTrouble, ClosedByCloseRange) {
    const AddressRange r = block(32);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    write(r, 1);
    ASSERT_EQ(syscall(SYS_close_range, 100u, ~0u, 0u), 0);
    expect_lost_then_recovered(r);
}

TEST_F(GuardTrouble, OnlyThePagemapClosed) {
    const AddressRange r = block(32);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    write(r, 1);
    close(page_guard_files().pagemap);
    EXPECT_EQ(collect(r, true, 8), Pages{1}) << "nothing was lost: the registration is the userfaultfd's";
}

TEST_F(GuardTrouble, ReplacedByDup2) {
    const AddressRange r = block(32);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    char name[] = "/tmp/reprise-guard-XXXXXX";
    const int file = mkstemp(name);
    unlink(name);
    ASSERT_EQ(::write(file, "precious", 8), 8);
    const PageGuardFiles ours = page_guard_files();
    ASSERT_EQ(dup2(file, ours.pagemap), ours.pagemap);
    ASSERT_EQ(dup2(file, ours.userfaultfd), ours.userfaultfd);
    expect_lost_then_recovered(r);
    page_guard_reset_for_test();
    GuardCapabilities c;
    port().guard_probe(&c);
    EXPECT_TRUE(c.write_protect_async);
    struct stat a, b;
    ASSERT_EQ(fstat(file, &a), 0);
    for (int fd : {ours.pagemap, ours.userfaultfd}) {
        ASSERT_EQ(fstat(fd, &b), 0) << "somebody else's descriptor was closed";
        EXPECT_EQ(a.st_ino, b.st_ino);
        close(fd);
    }
    EXPECT_EQ(a.st_size, 8);
    close(file);
}

TEST_F(GuardTrouble, ForkedChildStartsOverAndTheParentKeepsTracking) {
    const AddressRange r = block(64);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    write(r, 3);
    EXPECT_EQ(in_child([&] {
                  GuardResult result;
                  write(r, 9);
                  collect(r, true, 8, &result);
                  if (result != GuardResult::kAllDirty) return 1;
                  if (port().guard_arm(r) != GuardResult::kOk) return 2;
                  if (collect(r, true, 8, &result) != Pages{} || result != GuardResult::kOk) return 3;
                  write(r, 11);
                  if (collect(r, true, 8) != Pages{11}) return 4;
                  if (port().guard_disarm(r) != GuardResult::kOk) return 5;
                  return 0;
              }),
              0);
    write(r, 5);
    EXPECT_EQ(collect(r, true, 8), (Pages{3, 5})) << "the child's writes are its own";
}

TEST_F(GuardTrouble, ForkWithoutHandlersIsNoticedByTheProcessId) {
    const AddressRange r = block(64);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    EXPECT_EQ(in_child(
                  [&] {
                      GuardResult result;
                      write(r, 9);
                      collect(r, true, 8, &result);
                      return result == GuardResult::kAllDirty ? 0 : 1;
                  },
                  false),
              0)
        << "the inherited pagemap shows the parent's memory";
    EXPECT_EQ(collect(r, true, 8), Pages{});
}

TEST_F(GuardTrouble, ScanFindsItsRegistrationGone) {
    const AddressRange r = block(32);
    ASSERT_EQ(port().guard_arm(r), GuardResult::kOk);
    write(r, 2);
    fault_configure("guard_scan_eperm:1");
    expect_lost_then_recovered(r);
    fault_configure("guard_scan_eperm");
    GuardResult result;
    collect(r, true, 8, &result);
    EXPECT_EQ(result, GuardResult::kAllDirty);
    EXPECT_EQ(port().guard_arm(r), GuardResult::kUnavailable) << "cannot be armed, and says so";
    fault_configure(nullptr);
    expect_working(r);
}

TEST_F(GuardTrouble, RegistrationFails) {
    EXPECT_EQ(in_child([&] {
                  const AddressRange r = block(32);
                  fault_configure("guard_register");
                  return port().guard_arm(r) == GuardResult::kUnavailable ? 0 : 1;
              }),
              0);
}

TEST_F(GuardTrouble, SwitchedOff) {
    EXPECT_EQ(in_child([&] {
                  setenv("REPRISE_DIRTY", "compare", 1);
                  page_guard_reset_for_test();
                  GuardCapabilities c;
                  port().guard_probe(&c);
                  if (c.write_protect_async || std::strstr(c.reason, "REPRISE_DIRTY=compare") == nullptr) return 1;
                  const AddressRange r = block(32);
                  if (port().guard_arm(r) != GuardResult::kUnavailable) return 2;
                  GuardResult result;
                  collect(r, true, 8, &result);
                  if (result != GuardResult::kUnavailable) return 3;
                  return page_guard_files().userfaultfd == -1 ? 0 : 4;
              }),
              0);
}

TEST_F(GuardTrouble, RefusedByTheKernel) {
    EXPECT_EQ(in_child([&] {
                  fault_configure("guard_open");
                  page_guard_reset_for_test();
                  GuardCapabilities c;
                  port().guard_probe(&c);
                  return !c.write_protect_async && std::strstr(c.reason, "userfaultfd") != nullptr ? 0 : 1;
              }),
              0);
}

TEST_F(GuardTrouble, ForbiddenBySeccomp) {
    EXPECT_EQ(in_child([&] {
                  // As a container's default profile: the system call and the device's ioctl answer EPERM.
                  sock_filter code[] = {
                      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
                      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xAA00, 0, 1),
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                  };
                  sock_fprog program{sizeof code / sizeof code[0], code};
                  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 1;
                  page_guard_reset_for_test();
                  GuardCapabilities c;
                  port().guard_probe(&c);
                  if (c.write_protect_async) return 2;
                  if (std::strstr(c.reason, "seccomp") == nullptr) return 3;
                  return port().guard_arm(block(32)) == GuardResult::kUnavailable ? 0 : 4;
              }),
              0);
}

}  // namespace
}  // namespace reprise::test
