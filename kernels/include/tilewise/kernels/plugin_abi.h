/* The C interface between Tilewise and kernels that users bring in shared objects. Stable: fields are only ever added
 * behind a new abi version. A plug-in exports one function,
 *
 *     const struct tilewise_plugin_v1* tilewise_plugin(void);
 *
 * whose result, like everything it points to, lives as long as the library. Workers load plug-ins at start; name,
 * version and the file's hash are compared at join, and no code ever travels in messages. */
#ifndef TILEWISE_PLUGIN_ABI_H_
#define TILEWISE_PLUGIN_ABI_H_
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TILEWISE_PLUGIN_ABI 1
#define TILEWISE_MAX_RANK 8

/* Values of ir::DType. */
enum tilewise_dtype {
  TILEWISE_BOOL = 0,
  TILEWISE_INT32 = 1,
  TILEWISE_INT64 = 2,
  TILEWISE_FLOAT32 = 3,
  TILEWISE_FLOAT64 = 4,
  TILEWISE_INT8 = 5,
  TILEWISE_INT16 = 6,
  TILEWISE_UINT8 = 7,
  TILEWISE_UINT16 = 8,
  TILEWISE_UINT32 = 9,
  TILEWISE_UINT64 = 10,
  TILEWISE_FLOAT16 = 11,
  TILEWISE_BFLOAT16 = 12,
  TILEWISE_COMPLEX64 = 13, /* real, imaginary */
  TILEWISE_COMPLEX128 = 14
};

/* Memory of one region. Outputs are C-order and contiguous; inputs may have any strides, 0 repeats. */
struct tilewise_view_v1 {
  void* data;    /* of element (0, ..., 0); device memory for cuda launches; null: not read in this step */
  int32_t dtype; /* enum tilewise_dtype */
  int32_t rank;
  int64_t shape[TILEWISE_MAX_RANK];
  int64_t strides[TILEWISE_MAX_RANK]; /* in elements, signed */
  int64_t lo[TILEWISE_MAX_RANK];      /* where the region starts in its array (inputs: in the
                                           operand's view; a halo window: in the array it was gathered into) */
};

/* One step of one task. */
struct tilewise_call_v1 {
  const void* params; /* opaque bytes from the caller of map_blocks or task */
  size_t params_bytes;
  int32_t rank;                      /* of the op's space */
  int64_t box_lo[TILEWISE_MAX_RANK]; /* the task's elements there: [lo, hi) */
  int64_t box_hi[TILEWISE_MAX_RANK];
  int64_t space[TILEWISE_MAX_RANK]; /* the space's extents */
  int64_t step, steps;              /* 0 and 1; in a sweep which of how many, and outputs keep their bytes */
  /* One input an operand; with listed blocks (explicit index maps) one a block, in the order of operands and lists, so
   * their number may differ from call to call. */
  int32_t input_count, output_count;
  const struct tilewise_view_v1* inputs;
  const struct tilewise_view_v1* outputs;
  void* scratch;        /* the op's scratch_bytes, 256-byte aligned; null if none */
  void* stream;         /* cuda: CUstream; host: null */
  char* message;        /* a failing kernel writes why, zero-terminated, ... */
  size_t message_bytes; /* ... in at most this many bytes */
};

/* What a kernel may return beside 0: the values have no such result (a singular matrix, no convergence). Clients see it as
 * Errc::kSingular, anything else as kTaskFailed. (Kernels that Tilewise brings itself return an Errc.) */
#define TILEWISE_UNDEFINED 2

/* Returns 0, or anything else with a message. Runs on any thread, several at once; must not throw, block on other
 * tasks, or keep pointers. A cuda launch enqueues on call->stream and returns. */
typedef int (*tilewise_kernel_fn)(const struct tilewise_call_v1* call);

struct tilewise_kernel_v1 {
  const char* name;                  /* "solver.relax": unique among all plug-ins of a worker */
  tilewise_kernel_fn host;           /* null: not on the host */
  tilewise_kernel_fn cuda;           /* null: not on CUDA */
  int32_t input_count, output_count; /* -1: any */
  /* Null, or 0 when the dtypes suit; runs before the first launch. */
  int (*check)(const int32_t* input_dtypes, int32_t inputs, const int32_t* output_dtypes, int32_t outputs,
               char* message, size_t message_bytes);
};

struct tilewise_plugin_v1 {
  uint32_t abi; /* TILEWISE_PLUGIN_ABI */
  const char* name;
  const char* version;
  int32_t kernel_count;
  const struct tilewise_kernel_v1* kernels;
};

typedef const struct tilewise_plugin_v1* (*tilewise_plugin_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
