"""Look-alike characters: Latin letters by Cyrillic and Greek ones of the same shape, ideographs by similar ones.

The table of ideographs is our own: groups of common simplified characters that differ by a stroke or a component.
"""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import Perturbation, TextUnit, Units, draw_indices, draw_item

LATIN = dict(zip("aceopxyisjABCEHIKMOPTXYlvnu", "асеорхуіѕјАВСЕНІКМОРТХҮӏνпս", strict=True))
"""Latin letter → the same shape in another script."""
IDEOGRAPH_GROUPS = (
    "未末 土士 己已巳 日曰 人入八 大太犬 天夭 干千于 刀力刃 午牛 户尸 贝见 王玉主 木本术 田由甲申 目且 白自 "
    "今令 兔免 折拆 戊戌戍 拔拨 晴睛 清情请 暑署 辨辩辫 燥躁噪 竞竟 候侯 即既 栗粟 崇祟 徒徙 茶荼 斤斥 延廷 "
    "抡抢 沦沧 伦伧 仓仑 育盲 幻幼 杨扬 场汤 低抵 住往佳 很恨狠 根跟 轮论 说悦 谁难 推堆 惟维 房旁 快块 决诀 "
    "冰水永 外处 各名 历厉 儿几九 乌鸟 师帅 币市 布希 右石 可司 句旬 问间闻 闲闪 味昧 妹姝 完宗 宫官 蜜密 "
    "小少 尘尖 光先 克兄 元无 来米 束柬 材村 较校 样祥 样洋 极级 楼搂 概慨 止正 比北 此些 汽气 没设 泊伯 "
    "波坡 注柱 注往 洒酒 测侧 浪狼 梅海 悔海 消削 深探 湿温 满瞒 炒抄 烧浇 抓爬 狗拘 猫描 球求 理埋 观现 "
    "班斑 坏环 坏怀 甘廿 电申 皮反 看着 真直 短矮 社杜 祝视 科料 钟种 空穷 章童 等寺 精情 素紫 给拾 绳绝 "
    "缺决 网冈 羊美 老考 者著 而面 耳且 职识 内肉 肚肛 股般 胜性 态志 退腿 舍含 节芦 草早 菜莱 落洛 蓝篮 "
    "虎虚 蛋旦 表衷 披被 要耍 什计 认队 让计 记计 诚城 该孩 悟语 误娱 淡谈 射谢 贵责 货贷 质盾 跑泡 炮跑 "
    "东车 传转 经轻 载栽 辆俩 近进 这还 远运 迎仰 迫追 适话 速束 遇偶 那哪 都部 酸酷 重童 全金 线钱 错借 "
    "锁销 阳阴 院完 险验 随隋 准淮 零雪 两雨 箱霜 净静 页贞 项顶 须顺 预颂 凤风 气飞 饿俄 饭饮 香杳 亮高 "
    "鬼魂 鱼角 服报 店居 层屋 客容 家冢 察祭 北比 爱受 买卖 差羞 便使 做故 间问 房户 吃吐 喝渴 贵员 贱贼 "
    "旧归 新析 书韦 床庆 窗窟 早旱 晚挽 热势 冷泠 干午 净挣 服股 价阶 值植 送关 机枕 屏屎"
)


def _similar() -> dict[str, str]:
    """Ideograph → the similar ones."""
    similar: dict[str, str] = {}
    for group in IDEOGRAPH_GROUPS.split():
        for character in group:
            others = dict.fromkeys(similar.get(character, "") + group.replace(character, ""))
            similar[character] = "".join(others)
    return {character: others for character, others in similar.items() if others}


SIMILAR_IDEOGRAPHS = _similar()


class LookalikeCharacters(Perturbation):
    """One character of each chosen word replaced by one that looks the same or similar."""

    summary = "a letter replaced by one of another script that looks the same; an ideograph by a similar one"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """One replacement in the share `severity` of the words."""
        result = list(units)
        candidates = [index for index, unit in enumerate(units) if _places(unit.text)]
        for index in draw_indices(candidates, severity, rng):
            text = units[index].text
            places = _places(text)
            at = places[int(rng.integers(len(places)))]
            other = draw_item(SIMILAR_IDEOGRAPHS.get(text[at]) or LATIN[text[at]], rng)
            result[index] = replace(units[index], text=text[:at] + other + text[at + 1 :])
        return result


def _places(text: str) -> list[int]:
    return [at for at, letter in enumerate(text) if letter in SIMILAR_IDEOGRAPHS or letter in LATIN]
