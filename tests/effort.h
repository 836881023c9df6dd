// How much of what a test only repeats is worth it in this build. The release build does all of it. AddressSanitizer looks at single
// accesses and makes them about ten times slower: a tenth. ThreadSanitizer looks at what threads share: of code that runs on one thread it
// sees all there is to see in a token run. Nothing is skipped: every test runs in every build.
#pragma once

namespace reprise::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderThreads = true, kUnderAddresses = false;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kUnderThreads = false, kUnderAddresses = true;
#else
inline constexpr bool kUnderThreads = false, kUnderAddresses = false;
#endif

// One of three, by the build.
template <class T>
constexpr T by_build(T plain, T under_addresses, T under_threads) {
    return kUnderThreads ? under_threads : kUnderAddresses ? under_addresses : plain;
}

}  // namespace reprise::test
