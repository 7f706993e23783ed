/* A stand-in for libnvidia-ml.so.1, as much of it as the agent calls. What it answers is in the file that FAKE_NVML
 * names, read again at the next call after somebody has replaced it:
 *
 *     init_error CODE                        nvmlInit fails; 0: it does not
 *     count_error CODE
 *     count N                                GPUs there are
 *     driver TEXT
 *     hang 1                                 memory is not answered before the file says 0
 *     gpu I KEY N                            handle_error, memory_error, utilisation_error, mig, ecc, ecc_error,
 *                                            total_mib, free_mib, used_mib, utilisation
 *     slice I J KEY N                        the same of a MIG slice; there is one where free_mib is set
 *
 * Built with -DWITHOUT_MIG, -DWITHOUT_MEMORY_V2 or -DWITHOUT_COUNT it lacks what older drivers lack. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum { GPUS = 72, SLICES = 7, ANSWER_CHARS = 96 };

typedef struct {
  int handle_error, memory_error, utilisation_error, mig, ecc, ecc_error, there;
  unsigned utilisation;
  unsigned long long total_mib, free_mib, used_mib;
} Unit;

static struct {
  int init_error, count_error, hang;
  unsigned count;
  char driver[64];
  Unit gpu[GPUS], slice[GPUS][SLICES];
} said;

static int attached;
static struct stat seen;

static void set(Unit *unit, const char *key, unsigned long long value) {
  if (!strcmp(key, "handle_error")) unit->handle_error = (int)value;
  else if (!strcmp(key, "memory_error")) unit->memory_error = (int)value;
  else if (!strcmp(key, "utilisation_error")) unit->utilisation_error = (int)value;
  else if (!strcmp(key, "mig")) unit->mig = (int)value;
  else if (!strcmp(key, "ecc")) unit->ecc = (int)value;
  else if (!strcmp(key, "ecc_error")) unit->ecc_error = (int)value;
  else if (!strcmp(key, "utilisation")) unit->utilisation = (unsigned)value;
  else if (!strcmp(key, "total_mib")) unit->total_mib = value;
  else if (!strcmp(key, "free_mib")) unit->free_mib = value, unit->there = 1;
  else if (!strcmp(key, "used_mib")) unit->used_mib = value;
  else abort(); /* a test's mistake */
}

static void take(const char *line) {
  unsigned gpu, slice;
  unsigned long long value;
  char key[32];
  if (sscanf(line, "gpu %u %31s %llu", &gpu, key, &value) == 3 && gpu < GPUS) set(&said.gpu[gpu], key, value);
  else if (sscanf(line, "slice %u %u %31s %llu", &gpu, &slice, key, &value) == 4 && gpu < GPUS && slice < SLICES)
    set(&said.slice[gpu][slice], key, value);
  else if (sscanf(line, "init_error %d", &said.init_error) == 1) return;
  else if (sscanf(line, "count_error %d", &said.count_error) == 1) return;
  else if (sscanf(line, "count %u", &said.count) == 1) return;
  else if (sscanf(line, "hang %d", &said.hang) == 1) return;
  else if (sscanf(line, "driver %63s", said.driver) == 1) return;
  else abort();
}

static void read_again(void) {
  const char *path = getenv("FAKE_NVML");
  struct stat now;
  char line[128];
  FILE *file;
  if (!path || stat(path, &now)) abort();
  if (now.st_ino == seen.st_ino && !memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim)) return;
  if (!(file = fopen(path, "r"))) abort();
  memset(&said, 0, sizeof said);
  while (fgets(line, sizeof line, file)) take(line);
  fclose(file);
  seen = now;
}

/* A handle is 1 + 32 * GPU, and one more for each slice; no test reads through it. */
static Unit *unit_of(uintptr_t handle) {
  unsigned gpu = (unsigned)(handle - 1) / 32, slice = (unsigned)(handle - 1) % 32;
  if (!handle || gpu >= GPUS || slice > SLICES) return NULL;
  return slice ? &said.slice[gpu][slice - 1] : &said.gpu[gpu];
}

static int unit(uintptr_t handle, Unit **found) {
  read_again();
  if (!attached) return UNINITIALIZED;
  *found = unit_of(handle);
  return *found ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  read_again();
  if (said.init_error) return said.init_error;
  attached = 1;
  return SUCCESS;
}

int nvmlShutdown(void) {
  if (!attached) return UNINITIALIZED;
  attached = 0;
  return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  read_again();
  if (!attached) return UNINITIALIZED;
  snprintf(version, length, "%s", said.driver);
  return SUCCESS;
}

#ifndef WITHOUT_COUNT
int nvmlDeviceGetCount_v2(unsigned *count) {
  read_again();
  if (!attached) return UNINITIALIZED;
  *count = said.count;
  return said.count_error;
}
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, uintptr_t *handle) {
  read_again();
  if (!attached) return UNINITIALIZED;
  if (index >= said.count || index >= GPUS) return INVALID_ARGUMENT;
  *handle = 1 + 32 * (uintptr_t)index;
  return said.gpu[index].handle_error;
}

static int memory_error(uintptr_t handle, Unit **found) {
  int code = unit(handle, found);
  while (!code && said.hang) usleep(2000), read_again();
  return code ? code : (*found)->memory_error;
}

int nvmlDeviceGetMemoryInfo(uintptr_t handle, unsigned long long memory[3]) {
  Unit *found = NULL;
  int code = memory_error(handle, &found);
  if (code) return code;
  memory[0] = found->total_mib << 20, memory[1] = found->free_mib << 20, memory[2] = memory[0] - memory[1];
  return SUCCESS;
}

#ifndef WITHOUT_MEMORY_V2
typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} MemoryV2;

int nvmlDeviceGetMemoryInfo_v2(uintptr_t handle, MemoryV2 *memory) {
  Unit *found = NULL;
  int code = memory_error(handle, &found);
  if (code) return code;
  if (memory->version != 0x02000028) return INVALID_ARGUMENT;
  memory->total = found->total_mib << 20, memory->free = found->free_mib << 20, memory->used = found->used_mib << 20;
  memory->reserved = memory->total - memory->free - memory->used;
  return SUCCESS;
}
#endif

int nvmlDeviceGetUtilizationRates(uintptr_t handle, unsigned utilisation[2]) {
  Unit *found = NULL;
  int code = unit(handle, &found);
  if (code) return code;
  if (found < said.gpu || found >= said.gpu + GPUS || found->mig) return NOT_SUPPORTED;
  utilisation[0] = found->utilisation, utilisation[1] = 0;
  return found->utilisation_error;
}

int nvmlDeviceGetName(uintptr_t handle, char *name, unsigned length) {
  Unit *found = NULL;
  int code = unit(handle, &found);
  if (code) return code;
  snprintf(name, length, "%s", "NVIDIA Pretended 80GB");
  return SUCCESS;
}

int nvmlDeviceGetUUID(uintptr_t handle, char *uuid, unsigned length) {
  Unit *found = NULL;
  int code = unit(handle, &found);
  if (code) return code;
  snprintf(uuid, length, "%s-%08u", (handle - 1) % 32 ? "MIG" : "GPU", (unsigned)handle);
  return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(uintptr_t handle, unsigned kind, unsigned counter, unsigned long long *count) {
  Unit *found = NULL;
  int code = unit(handle, &found);
  if (code) return code;
  if (kind != 1 || counter != 0) return INVALID_ARGUMENT;
  *count = (unsigned long long)found->ecc;
  return found->ecc_error;
}

#ifndef WITHOUT_MIG
int nvmlDeviceGetMigMode(uintptr_t handle, unsigned *current, unsigned *pending) {
  Unit *found = NULL;
  int code = unit(handle, &found);
  if (code) return code;
  *current = *pending = (unsigned)found->mig;
  return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(uintptr_t handle, unsigned *count) {
  Unit *found = NULL;
  int code = unit(handle, &found);
  *count = SLICES;
  return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(uintptr_t gpu, unsigned index, uintptr_t *slice) {
  Unit *found = NULL;
  int code = unit(gpu, &found);
  if (code) return code;
  if (index >= SLICES || !said.slice[(gpu - 1) / 32][index].there) return NOT_FOUND;
  *slice = gpu + 1 + index;
  return SUCCESS;
}
#endif
