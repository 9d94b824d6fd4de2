#include <tilewise/base/digest.h>

#include <sys/prctl.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "ucx_impl.h"

namespace tilewise::transfer {

namespace {

constexpr TimeNs kCloseTime = 2 * kSecond;
// Wraps a worker's address: UCX reads what it is given without a length, so ours carries one, a digest, and
// the version of UCX, whose wire format changes between releases.
constexpr char kAddressMagic[4] = {'T', 'W', 'X', '3'};
struct AddressHeader {
  char magic[4];
  std::uint32_t ucx_version;
  std::uint64_t digest;
  std::uint64_t fast_network;  // 1: this UCX has more than TCP between hosts
};
constexpr std::size_t kMaxAddressBytes = 16'384;

std::uint32_t ucx_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return major << 16 | minor;
}

std::uint64_t digest_of(std::string_view raw) {
  Digest digest;
  digest.mix(raw);
  return digest.value();
}

// UCX tells people only: "resource 3  :  md 1  dev 3  flags -- tcp/lo".
bool has_fast_network(ucp_context_h context) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return false;
  ucp_context_print_info(context, stream);
  std::fclose(stream);
  const bool fast = lists_fast_network({text, bytes});
  std::free(text);
  return fast;
}

ucs_status_t on_am(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                   const ucp_am_recv_param_t* param) {
  const bool bulk = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return static_cast<UcxEngine::Impl*>(arg)->on_message(header, header_bytes, data, bytes, bulk);
}

}  // namespace

Error ucx_error(const std::string& what, ucs_status_t status) {
  // UCX's own time-outs are about connections: kTimeout is kept for our deadline.
  const Errc code = status == UCS_ERR_NO_MEMORY ? Errc::kOutOfMemory : Errc::kUnavailable;
  return error(code, what + ": UCX: " + ucs_status_string(status));
}

void UcxEngine::prepare_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Memory domains read the environment only. With it a process that dies is noticed in milliseconds even
    // where its memory was read directly (cma); without it such lanes are not used when errors are to be
    // reported.
    ::setenv("UCX_CMA_MEMORY_INVALIDATE", "y", 0);
    // One socket's event at a time. What a break of one connection does to another one of the same peer is forgotten by UCX
    // 1.13 where the other's event was read with it: it aborts ("conn_state != CLOSED") when several are reset at once.
    ::setenv("UCX_TCP_MAX_POLL", "1", 0);
    // Where the Yama module lets only parents read a process's memory, the peers may all the same (stream_lane.h): those of the same user,
    // as without it. UCX's cma says the same.
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    // Read when the library was loaded, so the environment comes too late for these. Memory kinds are always
    // told.
    if (std::getenv("UCX_MEMTYPE_CACHE") == nullptr) ucs_global_opts_set_value("MEMTYPE_CACHE", "n");
    // It logs to standard output; what it has to say about a dead peer comes back as an Error.
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    if (std::getenv("UCX_ERROR_SIGNALS") == nullptr && std::getenv("UCX_HANDLE_ERRORS") == nullptr) {
      for (int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
    }
  });
}

Status UcxEngine::Impl::init() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error("reading the configuration", status);
  const auto set = [&](const char* key, const std::string& value, bool over_user) {
    const bool user = std::getenv((std::string("UCX_") + key).c_str()) != nullptr;
    if (!value.empty() && status == UCS_OK && (over_user || !user))
      status = ucp_config_modify(config, key, value.c_str());
  };
  // Without its shared memory: whoever is killed while it writes into a process's queue there leaves it deaf to all its host. What goes
  // inside a host has a stream (docs/design/data-connections.md).
  set("TLS", options.transports.empty() ? "^posix,sysv,xpmem" : options.transports,
      !options.transports.empty());
  set("NET_DEVICES", options.net_devices, false);
  set("KEEPALIVE_INTERVAL", "1s", false);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "tilewise";
  if (status == UCS_OK) status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) return ucx_error("starting with transports \"" + options.transports + "\"", status);

  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context, &attributes) == UCS_OK) memory_types = attributes.memory_types;
  fast_network = has_fast_network(context);
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context, &worker_params, &worker);
  if (status != UCS_OK) return ucx_error("making a worker", status);
  status = ucp_worker_get_efd(worker, &event_fd);
  if (status != UCS_OK) return ucx_error("making an event descriptor", status);

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kAmId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_am;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker, &handler);
  if (status != UCS_OK) return ucx_error("installing the handler", status);

  ucp_address_t* raw = nullptr;
  std::size_t bytes = 0;
  status = ucp_worker_get_address(worker, &raw, &bytes);
  if (status != UCS_OK) return ucx_error("asking for the address", status);
  const std::string_view text(reinterpret_cast<const char*>(raw), bytes);
  AddressHeader header{.ucx_version = ucx_version(), .digest = digest_of(text), .fast_network = fast_network};
  std::memcpy(header.magic, kAddressMagic, sizeof header.magic);
  address.assign(reinterpret_cast<const char*>(&header), sizeof header);
  address += text;
  ucp_worker_release_address(worker, raw);
  return {};
}

UcxEngine::Impl::~Impl() {
  if (worker != nullptr) {
    const TimeNs until = monotonic_now() + kCloseTime;
    for (auto& [cookie, peer] : peers) close(*peer, error(Errc::kCancelled, "the engine ends"));
    while (!closing.empty() && monotonic_now() < until) {
      ucp_worker_progress(worker);
      reap_closes();
    }
    for (ucp_mem_h memory : registered) ucp_mem_unmap(context, memory);
    ucp_worker_destroy(worker);  // what did not complete by now is let go here
  }
  if (context != nullptr) ucp_cleanup(context);
}

UcxEngine::UcxEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UcxEngine::~UcxEngine() = default;

Result<std::unique_ptr<UcxEngine>> UcxEngine::create(const UcxOptions& options) {
  prepare_process();
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  TW_TRY(impl->init());
  return std::unique_ptr<UcxEngine>(new UcxEngine(std::move(impl)));
}

const std::string& UcxEngine::address() const { return impl_->address; }
const UcxCounters& UcxEngine::counters() const { return impl_->counters; }
int UcxEngine::event_fd() const { return impl_->event_fd; }
bool UcxEngine::idle() const { return impl_->ops.empty() && impl_->finished.empty(); }

bool UcxEngine::supports(device::Kind kind) const {
  const auto type = kind == device::Kind::kHost ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
  return (impl_->memory_types >> type & 1) != 0;  // a mask of bits, not of values
}

Status UcxEngine::register_slab(const device::Slab& slab, device::Kind kind) {
  if (!supports(kind))
    return error(Errc::kUnsupported, "UCX moves no memory of kind " + std::string(name_of(kind)));
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = slab.data;
  params.length = static_cast<std::size_t>(slab.bytes);
  ucp_mem_h memory = nullptr;
  if (const ucs_status_t status = ucp_mem_map(impl_->context, &params, &memory); status != UCS_OK) {
    return ucx_error("registering a slab of " + std::to_string(slab.bytes) + " bytes", status);
  }
  impl_->registered.push_back(memory);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
  if (const ucs_status_t status = ucp_mem_query(memory, &attributes); status != UCS_OK) {
    return ucx_error("asking for the kind of a slab", status);
  }
  const auto type = kind == device::Kind::kHost ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
  if (attributes.mem_type == type) return {};
  impl_->memory_types &= ~(std::uint64_t{1} << type);
  return error(Errc::kDeviceError, "UCX takes a slab of kind " + std::string(name_of(kind)) + " for " +
                                       ucs_memory_type_names[attributes.mem_type]);
}

Status UcxEngine::add_peer(const Cookie& cookie, std::string_view address) {
  if (impl_->peers.size() >= impl_->options.max_peers)
    return error(Errc::kLimitExceeded, "too many data peers");
  auto peer = std::make_unique<Peer>();
  peer->cookie = cookie;
  if (!address.empty()) {
    AddressHeader header;
    if (address.size() <= sizeof header || address.size() > kMaxAddressBytes) {
      return error(Errc::kCorruptData, "a UCX address of " + std::to_string(address.size()) + " bytes");
    }
    std::memcpy(&header, address.data(), sizeof header);
    const std::string_view raw = address.substr(sizeof header);
    const auto digit = sizeof kAddressMagic - 1;
    if (std::memcmp(header.magic, kAddressMagic, digit) == 0 && header.magic[digit] != kAddressMagic[digit])
      return error(Errc::kVersionMismatch, "the peer's data address is of another version of Tilewise");
    if (std::memcmp(header.magic, kAddressMagic, sizeof header.magic) != 0 ||
        header.digest != digest_of(raw)) {
      return error(Errc::kCorruptData, "what should be a UCX address is none");
    }
    peer->fast_network = header.fast_network != 0;
    peer->other_ucx = header.ucx_version != ucx_version();
    if (!peer->other_ucx) peer->address.assign(raw);
  }
  if (!impl_->peers.emplace(cookie, std::move(peer)).second) {
    return error(Errc::kAlreadyExists, "this cookie has a peer");
  }
  return {};
}

bool UcxEngine::progress() {
  Impl& me = *impl_;
  TW_CHECK(!me.progressing, "progress() was called from a callback of its own");
  me.progressing = true;
  bool any = false;
  for (int i = 0; i < 64 && ucp_worker_progress(me.worker) != 0; ++i) any = true;
  any |= me.pull();
  me.handle_broken();
  me.handle_broken_streams();
  me.reap_closes();
  me.expire(monotonic_now());
  any |= me.deliver();
  me.progressing = false;
  return any;
}

bool UcxEngine::arm() {
  if (!impl_->finished.empty() || !impl_->broken.empty() || !impl_->broken_streams.empty()) return false;
  if (!impl_->pulling.empty()) return false;
  return ucp_worker_arm(impl_->worker) != UCS_ERR_BUSY;
}

TimeNs UcxEngine::next_deadline() const {
  return impl_->alarms.empty() ? kNever : impl_->alarms.begin()->first;
}

}  // namespace tilewise::transfer
