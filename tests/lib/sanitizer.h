/* tests/lib/sanitizer.h - what a sanitizer's own ways forbid a test. */
#pragma once

/* ThreadSanitizer has a thread in every process, and takes signals first. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif
