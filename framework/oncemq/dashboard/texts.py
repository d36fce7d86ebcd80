"""Texts of the page, in English and Chinese."""

from collections.abc import Callable, Mapping
from typing import Final

LANGUAGES: Final = {"en": "English", "zh": "中文"}
COOKIE: Final = "oncemq_language"

_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "overview": ("Overview", "总览"),
    "dead letters": ("Dead letters", "死信"),
    "waiting messages": ("Waiting", "等待中"),
    "audit trail": ("Audit trail", "审计记录"),
    "configuration": ("Configuration", "配置"),
    "skip": ("Skip to the content", "跳到正文"),
    "find key": ("Business key", "业务主键"),
    "find": ("Find", "查找"),
    "read only": ("read only", "只读"),
    "changes allowed": ("changes allowed", "允许修改"),
    "updated": ("updated", "更新于"),
    "consumer": ("consumer", "消费者"),
    "topic": ("topic", "主题"),
    "state": ("state", "状态"),
    "running": ("running", "运行中"),
    "paused": ("paused", "已暂停"),
    "no process": ("no process", "无进程"),
    "unknown": ("unknown", "未知"),
    "applied/s": ("applied/s", "处理/秒"),
    "duplicates": ("duplicates", "重复"),
    "stale": ("stale", "过期"),
    "failed": ("failed", "失败"),
    "at the broker": ("at the broker", "队列中"),
    "unacked": ("unacked", "未确认"),
    "retries": ("retries", "待重试"),
    "parked": ("parked", "暂存"),
    "last applied": ("last applied", "最近处理"),
    "outbox": ("Outbox", "发件箱"),
    "processes": ("Processes", "进程"),
    "alive": ("alive", "存活"),
    "no heartbeat": ("no heartbeat", "无心跳"),
    "look at": ("Look at this", "需要处理"),
    "all well": ("Nothing needs an operator.", "没有需要处理的问题。"),
    "cannot be read": ("Cannot be read", "无法读取"),
    "pause": ("Pause", "暂停"),
    "resume": ("Resume", "恢复"),
    "why": ("Reason", "原因"),
    "timeline": ("Timeline", "时间线"),
    "now": ("Now", "当前"),
    "nothing known": ("Nothing is known about this key.", "没有关于该主键的记录。"),
    "key": ("key", "主键"),
    "reason": ("reason", "原因"),
    "error": ("error", "错误"),
    "error contains": ("error contains", "错误包含"),
    "since": ("since", "起始"),
    "until": ("until", "截止"),
    "attempts": ("attempts", "尝试次数"),
    "dead at": ("dead since", "成为死信时间"),
    "filter": ("Filter", "筛选"),
    "all": ("all", "全部"),
    "group by error": ("Group by error", "按错误分组"),
    "as list": ("As a list", "列表显示"),
    "count": ("count", "数量"),
    "locks": ("Locks", "锁"),
    "lock": ("lock", "锁"),
    "held by": ("held by", "持有者"),
    "ends in": ("frees itself in", "自动释放剩余时间"),
    "wait for it": ("waiting", "等待数"),
    "kind of lock": ("kind", "类型"),
    "permits left": ("permits left", "剩余许可"),
    "no strategy locks": (
        "No consumer of this app takes locks in Redis (strategy redis_lock, or locks and semaphores of handlers).",
        "此应用没有消费者使用 Redis 锁(策略 redis_lock,或处理函数中的锁与信号量)。",
    ),
    "not all locks": (
        "There may be more: `oncemq locks list` looks at all keys.",
        "可能还有更多。`oncemq locks list` 会查看所有键。",
    ),
    "about locks": (
        "A holder renews its lock while it works. `oncemq locks release` takes a lock away from a holder that is certainly dead.",
        "持有者工作期间会续期。`oncemq locks release` 可强制释放确已失效的持有者的锁。",
    ),
    "none here": ("None.", "无。"),
    "next page": ("Next page", "下一页"),
    "first page": ("First page", "第一页"),
    "searched": ("Dead letters that were looked at", "已查找的死信数"),
    "go on searching": ("Go on searching", "继续查找"),
    "begins again": (
        "The dead letter with which the page before ended is gone: this page begins with the first one.",
        "上一页末尾的死信已不存在 本页从第一条开始。",
    ),
    "of each consumer, the oldest that were read": (
        "of each consumer only the oldest were read, at most",
        "每个消费者只读取最早的死信 最多",
    ),
    "replay": ("Replay", "重放"),
    "purge": ("Delete", "删除"),
    "selected": ("selected", "所选"),
    "all of the filter": ("all of this filter", "全部符合筛选的"),
    "select": ("select", "选择"),
    "really": ("This is what would be changed", "将要修改的内容"),
    "letters affected": ("dead letters are selected now", "条死信被选中"),
    "rate": ("At most so many a second", "每秒最多"),
    "do it": ("Do it", "执行"),
    "back": ("Back", "返回"),
    "progress": ("Progress", "进度"),
    "done": ("done", "完成"),
    "not done": ("not done", "未完成"),
    "goes on": ("It goes on; this page shows how far it is.", "正在执行。本页显示进度。"),
    "ended": ("It has ended.", "已结束。"),
    "stop": ("Stop", "停止"),
    "ended early": ("It ended early", "提前结束"),
    "headers": ("Headers", "消息头"),
    "body": ("Body", "消息体"),
    "bytes": ("bytes", "字节"),
    "cut": ("only the beginning is shown", "仅显示开头"),
    "download": ("Original bytes", "下载原始字节"),
    "traceback": ("Traceback", "堆栈"),
    "message id": ("message id", "消息 ID"),
    "published": ("published", "发布时间"),
    "claims": ("Effects of unknown outcome", "结果未知的外部操作"),
    "identity": ("identity", "标识"),
    "it happened": ("It happened", "已执行"),
    "it did not": ("It did not happen", "未执行"),
    "refused": ("Published messages that a broker refuses", "被消息服务器拒绝的消息"),
    "later": ("Published for later", "延迟消息"),
    "due": ("due", "到期"),
    "retry now": ("Retry now", "立即重试"),
    "drop": ("Drop", "丢弃"),
    "number": ("number", "序号"),
    "at": ("at", "时间"),
    "who": ("who", "操作人"),
    "action": ("action", "操作"),
    "what": ("what", "对象"),
    "handler": ("handler", "处理函数"),
    "effects": ("effects", "作用位置"),
    "strategies": ("strategies", "策略"),
    "group": ("group", "消费组"),
    "workers": ("workers", "工作线程"),
    "keep": ("records kept", "记录保留"),
    "attempts in all": ("attempts", "总尝试次数"),
    "breakers": ("breakers", "熔断器"),
    "databases": ("Databases", "数据库"),
    "brokers": ("Brokers", "消息服务器"),
    "ledger size": ("size of the ledger", "账本大小"),
    "not found": ("There is nothing here.", "这里没有内容。"),
    "shown first": ("only the first are shown", "仅显示前若干条"),
    "redis": ("Redis", "Redis"),
}

Translate = Callable[[str], str]


def translator(language: str) -> Translate:
    """Return a function from a text's name to the text."""
    place = 1 if language == "zh" else 0
    return lambda name: _TEXTS[name][place]


def language_of(accepted: str, chosen: str | None) -> str:
    """Return the language: the chosen one, else the first of the browser's that there is, else English.

    Args:
        accepted: the header Accept-Language.
        chosen: from an address or a cookie.
    """
    if chosen in LANGUAGES:
        return str(chosen)
    for part in accepted[:200].split(","):
        name = part.split(";")[0].strip().lower()[:2]
        if name in LANGUAGES:
            return name
    return "en"
