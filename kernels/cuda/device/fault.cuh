// What a kernel found wrong with the numbers it was given: told to the host as the failure of its step
// (tilewise/cuda/data_fault.h). Any one of the threads that find something may be the one that is heard.

struct DataFault {
  int code, unused;
  i64 format, value[3];
};
struct FaultTo {
  i64 fault, format;  // addresses, of the host's memory
  int code, unused;
};

__device__ __forceinline__ void tw_raise(const FaultTo& to, i64 first, i64 second, i64 third) {
  DataFault* const fault = (DataFault*)to.fault;
  fault->value[0] = first;
  fault->value[1] = second;
  fault->value[2] = third;
  fault->format = to.format;
  fault->code = to.code;
}
