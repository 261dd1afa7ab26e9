# ruff: noqa: E501 - texts in wide scripts
"""The estimate stays close to an exact count, for every script and kind of text."""

from __future__ import annotations

import base64
import json
import random
import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from leporello.tokens import count_message, count_text, exact_counter

if TYPE_CHECKING:
    from collections.abc import Callable

_exact = exact_counter()
if _exact is None:
    pytest.skip("the exact counter is not installed", allow_module_level=True)
exact: Callable[[str], int] = _exact

_rng = random.Random(20)
_words = ["report", "window", "value", "total", "market", "river", "simple", "number", "reason", "answer", "before"]

TEXTS = {
    "english": "The lighthouse keeper wrote down the weather every evening, even when nothing had changed. Years later, "
    "his notes turned out to be the only record of how slowly the storms had moved north.\n" * 6,
    "chat": "Hi! Could you help me find a gift for my nephew? He's turning nine and he loves dinosaurs, but he already "
    "has about a hundred of them, haha. Something he can build would be great.\n" * 6,
    "chinese": "春天的时候，院子里的小猫总喜欢躺在窗台上晒太阳。邻居家的孩子放学回来，常常给它带一点鱼干。有一天它不见了，"
    "大家找了很久，最后在图书馆的书架后面发现了它，还有三只刚出生的小猫。\n" * 8,
    "traditional chinese": "這家麵店開了四十年，老闆每天清晨四點起床熬湯。他說客人吃得開心，比什麼都重要。下雨天生意特別好，"
    "學生們收了傘擠在小桌子旁邊，一邊吃一邊抱怨考試。去年他的女兒從國外回來，把帳本改成電腦系統，還在牆上掛了一張"
    "老照片，照片裡的爺爺正推著木頭車賣麵。\n" * 4,
    "japanese": "電車が遅れたので、会議に間に合いませんでした。けれども同僚が資料を配ってくれたおかげで、話し合いは無事に終わり、"
    "来週の予定も決まりました。帰りに駅の本屋に寄ると、ずっと探していた古い地図が見つかり、うれしくてその場で買いました。"
    "設定ファイルを書き換えたあとは、必ずプログラムを再起動してください。そうしないと変更が反映されません。\n" * 3,
    "korean": "기차가 늦어서 회의에 참석하지 못했지만 동료가 자료를 나눠 준 덕분에 이야기는 잘 끝났습니다. "
    "다음 주에는 모두 함께 저녁을 먹기로 했어요.\n" * 8,
    "russian": "Поезд опоздал почти на час, и мы успели познакомиться со всеми соседями по платформе. Кто-то достал "
    "гитару, кто-то угощал яблоками, и дорога показалась совсем короткой.\n" * 6,
    "arabic": "تأخر القطار ساعة كاملة فجلسنا على الرصيف نتحدث مع المسافرين ونتقاسم ما لدينا من الخبز والزيتون حتى نسينا أننا كنا "
    "ننتظر. حكت لنا سيدة كبيرة عن قريتها التي تركتها وهي طفلة، وكيف كانت تمشي إلى المدرسة بين أشجار البرتقال. إذا ظهرت رسالة "
    "خطأ بعد التحديث فحاول أولا أن تعيد تشغيل الجهاز، ثم تأكد من أن الاتصال بالشبكة يعمل جيدا.\n" * 3,
    "hindi": "रेलगाड़ी एक घंटा देर से आई, तब तक हम सबने मिलकर अंताक्षरी खेली और स्टेशन की चाय पी। रास्ता कब कट गया, "
    "पता ही नहीं चला।\n" * 6,
    "german": "Der Zug hatte eine Stunde Verspätung, also setzten wir uns auf den Bahnsteig und teilten unsere Brote mit den "
    "übrigen Reisenden. Eine ältere Frau erzählte, dass sie zum ersten Mal seit zwanzig Jahren ihre Schwester besucht. "
    "Wenn die Prüfung fehlschlägt, sollte man zuerst nachsehen, ob die Datei überhaupt gespeichert wurde; meistens liegt "
    "es nicht am Programm, sondern daran, dass zwei Leute gleichzeitig daran gearbeitet haben.\n" * 3,
    "emoji": "Great job 🎉🎉 see you tomorrow 😊👍🏽 don't forget the cake 🍰🕯️ and the dog 🐶❤️\n" * 12,
    "python": "def total(items: list[Item]) -> int:\n    result = 0\n    for item in items:\n        if item.price is None:\n"
    '            raise ValueError(f"no price for {item.name!r}")\n        result += item.price * item.count\n    return result\n\n'
    * 5,
    "json": json.dumps(
        [{"flight_number": "HAT271", "origin": "ORD", "date": "2024-05-21", "seats": {"economy": 14}, "price": 187}]
        * 12
    ),
    "json escaped": json.dumps(
        {"stdout": "line one\n\tline two\n" * 30, "code": 'print("hello")\n' * 20, "exit_code": 0}
    ),
    "digits": "".join(_rng.choices("0123456789", k=1500)),
    "base64": base64.b64encode(_rng.randbytes(1200)).decode(),
    "hex": _rng.randbytes(700).hex(),
    "uuids": "\n".join(str(uuid.UUID(int=_rng.getrandbits(128))) for _ in range(30)),
    "log": "\n".join(
        f"2026-03-{day:02} 04:1{day % 10}:07.331  WARN   worker-{day}      retry in {day * 7} ms       queue=mail"
        for day in range(1, 29)
    ),
    "indented": "\n".join(" " * (4 * (i % 9)) + " ".join(_rng.choices(_words, k=4)) for i in range(60)),
    "diff": "@@ -10,6 +10,7 @@\n-    return old_value\n+    if new_value is None:\n+        return default\n" * 15,
    "paths": "\n".join(f"/usr/lib/python3/{a}/{b}_test.py:{i}" for i, (a, b) in enumerate(pairwise(_words))) * 4,
}
MOST = 0.15


def is_accurate(count: Callable[[str], int]) -> bool:
    """Tell whether a counter is close enough on every text."""
    return all(abs(count(text) / exact(text) - 1) <= MOST for text in TEXTS.values())


@pytest.mark.parametrize("kind", TEXTS)
def test_every_kind_of_text_is_within_fifteen_percent(kind: str) -> None:
    text = TEXTS[kind]
    assert abs(count_text(text) / exact(text) - 1) <= MOST, (kind, count_text(text), exact(text))


def test_the_same_check_rejects_rules_of_thumb() -> None:
    assert is_accurate(count_text)
    assert not is_accurate(lambda text: len(text) // 4)
    assert not is_accurate(lambda text: len(text.encode()) // 4)
    assert not is_accurate(lambda text: len(text.split()) * 4 // 3)


def tool_turn() -> dict[str, Any]:
    arguments = json.dumps({"path": "src/app.py", "content": TEXTS["python"]})
    call = {"id": "call_7", "type": "function", "function": {"name": "write_file", "arguments": arguments}}
    return {"role": "assistant", "content": "I will write the file.", "tool_calls": [call]}


def is_accurate_for_tools(count: Callable[[dict[str, Any]], int]) -> bool:
    """Tell whether a counter of messages is close enough when most of a message is a tool call."""
    message = tool_turn()
    function = message["tool_calls"][0]["function"]
    truth = sum(map(exact, (message["content"], function["name"], function["arguments"])))
    return abs(count(message) / truth - 1) <= MOST


def test_arguments_of_tool_calls_count_and_a_counter_without_them_is_rejected() -> None:
    assert is_accurate_for_tools(count_message)
    assert not is_accurate_for_tools(lambda message: count_message({**message, "tool_calls": []}))


def test_exact_counter_survives_lone_surrogates() -> None:
    assert exact("a\ud800b") > 0
