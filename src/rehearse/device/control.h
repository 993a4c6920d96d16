/* What a rehearsed program's helpers may tell and ask the stand-in device: exported by libplimsoll_device.so, plain C so that Python's
 * ctypes can call it. Every function may be called from any thread. */
#ifndef PLIMSOLL_REHEARSE_CONTROL_H
#define PLIMSOLL_REHEARSE_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a mark into the record. `kind` is record::MarkKind: 1 step begins, 2 step ends, 3 phase begins, 4 phase ends, 5 text, 6 warning.
 */
void plimsoll_rehearse_mark(int kind, const char* text, int64_t value);

/* One event of the framework's caching allocator. `action` is record::BlockAction; `stack` may be null. */
void plimsoll_rehearse_block(int action, uint64_t address, uint64_t bytes, void* stream, const char* stack);

/* The communicator that the next ncclCommSplit with this colour makes in this process has `size` ranks and this process is `rank` of it:
 * one rank alone cannot know how many others give the same colour. Colour -1 stands for the next split of whatever colour that nothing was
 * said about. */
void plimsoll_rehearse_expect_split(int color, int size, int rank);

/* The device works for a library that is not there, on a stream of this process: `type` is record::Type, `numbers` its sizes. 0 where there is no
 * such stream. */
int plimsoll_rehearse_library_call(const char* name, void* stream, int type, const int64_t* numbers, uint32_t count);

/* Changes the capacity of every device from here on. */
void plimsoll_rehearse_set_memory(uint64_t bytes);

/* Launches by which the device runs behind the host from here on (PLIMSOLL_REHEARSE_LAG). */
void plimsoll_rehearse_set_lag(uint32_t launches);

/* 0 stops recording, 1 resumes it. */
void plimsoll_rehearse_record(int on);

/* In a forked child whose environment is not its parent's: the machine is what the environment says now, and has a record of its own. 0 where
 * the parent has used the device, which leaves everything as it is; else 1. */
int plimsoll_rehearse_begin_again(void);

/* Ends the record, for a program that leaves without running its exit handlers. */
void plimsoll_rehearse_finish(void);

/* Small values of device memory: 1 when [address, address + bytes) is device memory and was copied, else 0. */
int plimsoll_rehearse_read(const void* device_address, void* host, size_t bytes);
int plimsoll_rehearse_write(void* device_address, const void* host, size_t bytes);
/* What is known of values in device memory: 0 nothing, 1 what was assumed of uncomputed ones, 2 the values themselves. The program's helpers
 * put values there and note it; copies and fills note it themselves. Whatever was put there reads as zeros again, and is forgotten, once the
 * framework's caching allocator gives the block to another tensor. */
void plimsoll_rehearse_note_values(const void* device_address, size_t bytes, int knowledge);
/* The least that is known of any of these bytes. */
int plimsoll_rehearse_known(const void* device_address, size_t bytes);

typedef struct {
  uint64_t kernels, gemms, collectives, copies, events; /* of the record, since the program began */
  uint64_t values_read;                                 /* device-to-host copies, which return zeros or what the host wrote */
  uint64_t used_bytes, peak_bytes;                      /* of the current device, context included */
  uint64_t pinned_bytes, peak_pinned_bytes;             /* page-locked host memory */
  uint64_t failed_bytes;                                /* what the last failed allocation asked for, 0 if none failed */
  uint64_t unmodelled;                                  /* distinct functions without behaviour that were called */
} plimsoll_rehearse_totals;
void plimsoll_rehearse_get_totals(plimsoll_rehearse_totals* totals);

/* Path of the record being written, empty when there is none. */
const char* plimsoll_rehearse_record_path(void);

#ifdef __cplusplus
}
#endif
#endif
