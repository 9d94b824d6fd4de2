// Integer products: C (M x N, C order) = or += A (M x K) B (K x N), any strides, of each matrix of a stack. Generated before
// this text: Value. Integers wrap, so the order of additions never shows.

struct MatmulParams {
  Walk stack;
  Place place[3];  // of the stack: C, A, B
  i64 m, n, k;
  i64 tiles_m, tiles_n;  // of one matrix; thread blocks count them, columns first, then matrices
  i64 a_row, a_column, b_row, b_column;  // strides in elements
  int accumulate, unused;
};

constexpr int kTile = 16;  // squared: kThreads

extern "C" __global__ void __launch_bounds__(kThreads) tw_matmul(const __grid_constant__ MatmulParams p) {
  __shared__ Value a[kTile][kTile + 1], b[kTile][kTile + 1];
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const i64 tile = (i64)blockIdx.x / p.tiles_n, matrix = tile / p.tiles_m;
  const i64 row = (tile - matrix * p.tiles_m) * kTile + y,
            column = (blockIdx.x - tile * p.tiles_n) * kTile + x;
  i64 offset[3] = {};
  tw_offsets<3>(p.stack, p.place, matrix, offset);
  const Value* const from_a = (const Value*)p.place[1].base + offset[1];
  const Value* const from_b = (const Value*)p.place[2].base + offset[2];
  Value sum = 0;
  for (i64 start = 0; start < p.k; start += kTile) {
    const bool in_a = row < p.m && start + x < p.k, in_b = column < p.n && start + y < p.k;
    a[y][x] = in_a ? from_a[row * p.a_row + (start + x) * p.a_column] : Value(0);
    b[y][x] = in_b ? from_b[(start + y) * p.b_row + column * p.b_column] : Value(0);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile; ++j) sum = tw_add<Value>(sum, tw_mul<Value>(a[y][j], b[j][x]));
    __syncthreads();
  }
  if (row >= p.m || column >= p.n) return;
  Value& out = ((Value*)p.place[0].base + offset[0])[row * p.n + column];
  out = p.accumulate ? tw_add<Value>(out, sum) : sum;
}
