// Integer products: C (M x N, C order) = or += A (M x K) B (K x N), any strides. Generated before this text: Value.
// Integers wrap, so the order of additions never shows.

struct MatmulParams {
  i64 c, a, b;  // addresses
  i64 m, n, k;
  i64 a_row, a_column, b_row, b_column;  // strides in elements
  int accumulate, unused;
};

constexpr int kTile = 16;  // squared: kThreads

extern "C" __global__ void __launch_bounds__(kThreads) tw_matmul(const __grid_constant__ MatmulParams p) {
  __shared__ Value a[kTile][kTile + 1], b[kTile][kTile + 1];
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const i64 row = (i64)blockIdx.y * kTile + y, column = (i64)blockIdx.x * kTile + x;
  Value sum = 0;
  for (i64 start = 0; start < p.k; start += kTile) {
    const bool in_a = row < p.m && start + x < p.k, in_b = column < p.n && start + y < p.k;
    a[y][x] = in_a ? ((const Value*)p.a)[row * p.a_row + (start + x) * p.a_column] : Value(0);
    b[y][x] = in_b ? ((const Value*)p.b)[(start + y) * p.b_row + column * p.b_column] : Value(0);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile; ++j) sum = tw_add<Value>(sum, tw_mul<Value>(a[y][j], b[j][x]));
    __syncthreads();
  }
  if (row >= p.m || column >= p.n) return;
  Value& out = ((Value*)p.c)[row * p.n + column];
  out = p.accumulate ? tw_add<Value>(out, sum) : sum;
}
