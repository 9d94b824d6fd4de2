// What a request took, beside what was predicted of it when it was submitted.
#pragma once
#include <tilewise/explain.h>

namespace tilewise {

// A value. Figures so far, if the request has not ended.
class Account {
 public:
  // `told`: the scheduler's answer to Explain::account. `traces`: of this graph, from all workers, or none.
  Account(msg::Explanation told, const std::vector<msg::TraceReply>& traces,
          const std::vector<Device>& devices);

  // Predicted: as in an Explanation; `measured` (msg/account.h) has what the scheduler has counted.
  const msg::Explanation& told() const { return predicted_.account(); }
  const msg::Measured& measured() const { return told().measured; }
  bool predicted() const {
    return told().simulated;
  }  // else told().unpredicted, or too many steps, says why not
  bool ended() const { return !measured().running; }

  // What each device took in, by lane: of this request alone where workers remember all of its transfers, else what has been
  // counted while it ran, of whatever request.
  const std::vector<msg::MeasuredLink>& links() const { return links_; }
  bool own_links() const { return own_links_; }

  // The chain of steps and transfers that ended last, first to last, as workers remember them; "waits" is time in which
  // the device did something else, or nothing. `op` as in told().ops. Without records: empty.
  const std::vector<msg::CriticalAccount>& critical() const { return critical_; }
  double critical_s() const;
  // Some of the request's records may be missing: overwritten since (--trace-records), or too many to tell.
  bool overwritten() const { return overwritten_; }

  // For people: two figures side by side, predicted and measured.
  std::string text() const;
  // All figures as one JSON object: the prediction as Explanation::json has it, and "measured".
  std::string json() const;

 private:
  void find_links(const std::vector<msg::TraceReply>& traces);

  Explanation predicted_;
  std::vector<msg::MeasuredLink> links_;
  bool own_links_ = false, overwritten_ = false;
  std::vector<msg::CriticalAccount> critical_;
};

}  // namespace tilewise
