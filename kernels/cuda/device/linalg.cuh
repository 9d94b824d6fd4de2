// What cuSOLVER leaves to others: what its codes mean for a step, numbers that no iteration may see, determinants. Generated
// before this text: Real, float or double; kParts, of an element: 1, or 2 of a complex one.

// Told once a step: matrices of a stack come in order, and the first that is wrong is the one to hear of.
struct LinalgFault {
  FaultTo to;
  i64 first;            // added to an order
  i64 where[2];         // the matrix in its stack
  int ordered, unused;  // the text begins with an order
};
__device__ __forceinline__ void tw_wrong(const LinalgFault& fault, i64 order) {
  if (((volatile DataFault*)fault.to.fault)->code != 0) return;
  if (fault.ordered)
    tw_raise(fault.to, fault.first + order, fault.where[0], fault.where[1]);
  else
    tw_raise(fault.to, fault.where[0], fault.where[1], 0);
}

// ---- LAPACK's info: above zero, there is no such result (`fault`, unless it is nobody's); below, an argument is wrong

struct InfoParams {
  i64 info;
  LinalgFault fault, argument;
};
extern "C" __global__ void __launch_bounds__(kThreads) tw_linalg_info(const __grid_constant__ InfoParams p) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  const int info = *(const int*)p.info;
  if (info > 0 && p.fault.to.fault != 0) tw_wrong(p.fault, info);
  if (info < 0) tw_wrong(p.argument, -(i64)info);
}

// ---- NaN and infinity become zeros in what is iterated upon, and a fault

struct FiniteParams {
  i64 data, count;  // real numbers
  LinalgFault fault;
};
extern "C" __global__ void __launch_bounds__(kThreads)
    tw_linalg_finite(const __grid_constant__ FiniteParams p) {
  Real* const data = (Real*)p.data;
  bool bad = false;
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.count; i += step) {
    const Real x = data[i];
    if (x - x == 0) continue;
    data[i] = 0;
    bad = true;
  }
  if (bad) tw_wrong(p.fault, 0);
}

// ---- zeros on the diagonal of a triangular matrix: the first of them

struct DiagonalParams {
  i64 data, count, stride;  // elements between two of the diagonal
  LinalgFault fault;
};
extern "C" __global__ void __launch_bounds__(kThreads)
    tw_linalg_diagonal(const __grid_constant__ DiagonalParams p) {  // one block
  __shared__ i64 found[kThreads];
  const Real* const data = (const Real*)p.data;
  i64 first = p.count;
  for (i64 i = threadIdx.x; i < p.count && first == p.count; i += kThreads) {
    bool zero = true;
    for (int part = 0; part < kParts; ++part) zero = zero && data[i * p.stride * kParts + part] == 0;
    if (zero) first = i;
  }
  found[threadIdx.x] = first;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int t = 1; t < kThreads; ++t)
    if (found[t] < first) first = found[t];
  if (first < p.count) tw_wrong(p.fault, first + 1);
}

// ---- the determinant of LU factors (n x n, column-major) with their pivots, in the order of the diagonal, as on the host.
// Where LAPACK met a pivot of zero (info) the rest of the factors may not be there.

struct DetParams {
  i64 factors, pivots, info, n;  // info: an address, or none
  i64 sign, log, det;            // addresses of the results
};
extern "C" __global__ void __launch_bounds__(kThreads) tw_linalg_det(const __grid_constant__ DetParams p) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  const Real* const factors = (const Real*)p.factors;
  const int* const pivots = (const int*)p.pivots;
  Real sign[2] = {1, 0}, det[2] = {1, 0}, sum = 0;
  const bool singular = p.info != 0 && *(const int*)p.info > 0;
  if (singular) {
    sign[0] = det[0] = 0;
    sum = (Real)log((Real)0);
  }
  for (i64 i = 0; i < p.n && !singular; ++i) {
    const i64 at = (i * p.n + i) * kParts;
    const Real re = factors[at], im = kParts == 2 ? factors[at + kParts - 1] : (Real)0;
    const Real size = kParts == 2 ? (Real)hypot(re, im) : (Real)fabs(re);
    const Real turn = pivots[i] != i + 1 ? (Real)-1 : (Real)1;
    const Real unit_re = size == 0 ? (Real)0 : re / size, unit_im = size == 0 ? (Real)0 : im / size;
    const Real s = turn * (sign[0] * unit_re - sign[1] * unit_im), d = turn * (det[0] * re - det[1] * im);
    sign[1] = turn * (sign[0] * unit_im + sign[1] * unit_re);
    det[1] = turn * (det[0] * im + det[1] * re);
    sign[0] = s;
    det[0] = d;
    sum += (Real)log(size);
  }
  for (int part = 0; part < kParts; ++part) {
    ((Real*)p.sign)[part] = sign[part];
    ((Real*)p.det)[part] = det[part];
  }
  *(Real*)p.log = sum;
}

// ---- row exchanges: LAPACK's pivots (from one) as the row that comes to each place, and the sign of it all

struct OrderParams {
  i64 pivots, count, rows;  // of pivots, of the matrix
  i64 order, sign;          // addresses of the results
};
extern "C" __global__ void __launch_bounds__(kThreads)
    tw_linalg_order(const __grid_constant__ OrderParams p) {  // one block
  i64* const order = (i64*)p.order;
  for (i64 i = threadIdx.x; i < p.rows; i += kThreads) order[i] = i;
  __syncthreads();
  if (threadIdx.x != 0) return;
  Real sign = 1;
  for (i64 i = 0; i < p.count; ++i) {
    const i64 other = ((const int*)p.pivots)[i] - 1;
    if (other == i || other < 0 || other >= p.rows) continue;
    const i64 row = order[i];
    order[i] = order[other];
    order[other] = row;
    sign = -sign;
  }
  ((Real*)p.sign)[0] = sign;
  if (kParts == 2) ((Real*)p.sign)[kParts - 1] = 0;
}

struct ExchangeParams {
  i64 from, row, column;     // C and its strides, in elements
  i64 order, order_stride;   // the row that comes to each place
  i64 rows, columns, first;  // of C; rows that go to `top`
  i64 top, rest;
  LinalgFault fault;
};
extern "C" __global__ void __launch_bounds__(kThreads)
    tw_linalg_exchange(const __grid_constant__ ExchangeParams p) {
  const i64 step = (i64)gridDim.x * kThreads, count = p.rows * p.columns;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < count; i += step) {
    const i64 row = i / p.columns, column = i - row * p.columns;
    const i64 from = ((const i64*)p.order)[row * p.order_stride];
    if (from < 0 || from >= p.rows) {
      tw_wrong(p.fault, 0);
      continue;
    }
    const i64 to = row < p.first ? p.top : p.rest, at = row < p.first ? i : i - p.first * p.columns;
    for (int part = 0; part < kParts; ++part)
      ((Real*)to)[at * kParts + part] =
          ((const Real*)p.from)[(from * p.row + column * p.column) * kParts + part];
  }
}
